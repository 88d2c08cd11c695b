"""The whole finite-group lab as one plain loop: the regularizer in groups of G, and the recovery that groups cause.

Written from the paper (Eqs. 11-20, Appendix B) and from what the lab's docstrings say of its random numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tests.oracles import exact
from tests.oracles import shift as loss_of
from tests.oracles.network import Perceptron
from tests.oracles.sequence_lab import LOOKS_AT, UNFILTERED
from tests.oracles.single_task import RL_BATCHES, SingleTask, minibatches, stream

ROLLOUT_GROUPS, REFERENCE_GROUPS, RECOVERY_GROUPS = 20, 21, 22
EXACT = "exact"


def drawn(probs: list[float], uniforms: np.ndarray) -> list[int]:
    """An action for each uniform number."""
    return [loss_of.inverse_cdf(probs, uniform) for uniform in uniforms]


def drawn_filtered(probs: list[float], right: list[bool], uniforms: np.ndarray) -> list[int]:
    """Responses given that one is correct. The first uniform number places the first correct one; each response has
    one of the others: those before that place are of pi-, the one there is of pi+, those behind it are of pi.
    """
    size, mass = len(uniforms) - 1, exact.mass(probs, right)
    chances = [(1 - mass) ** place * mass for place in range(size)]
    first = loss_of.inverse_cdf([chance / sum(chances) for chance in chances], uniforms[0])
    before, there = exact.conditioned(probs, exact.opposite(right)), exact.conditioned(probs, right)
    return [
        loss_of.inverse_cdf(before if place < first else there if place == first else probs, uniform)
        for place, uniform in enumerate(uniforms[1:])
    ]


def log_mass(log_probs: Tensor, right: list[bool]) -> Tensor:
    """log Z."""
    return log_probs.exp()[torch.tensor(right)].sum().log()


class Run:
    """One run: a method at a coefficient, and how its regularizer is estimated."""

    def __init__(self, task: SingleTask, method: str, beta: float, groups: str, size: float, mu: int) -> None:
        self.task, self.config, self.method, self.beta = task, task.config, method, beta
        self.groups, self.size, self.mu = groups, size, mu
        self.filtered = method.removesuffix("_floor") not in UNFILTERED and groups != "unfiltered"
        self.identity = {
            "seed": task.seed,
            "method": method,
            "beta": beta,
            "groups": groups,
            "group_size": size,
            "optimizer_steps": mu,
        }

    def reference_group(self, probs: list[float], right: list[bool], uniforms: np.ndarray) -> list[int]:
        """Drawn by the reference."""
        return drawn_filtered(probs, right, uniforms) if self.filtered else drawn(probs, uniforms)

    def surrogate(self, known: list[tuple[Any, ...]]) -> Tensor:
        """Mean over a minibatch; known: policy, behaviour, reference, cached and fresh actions, what is correct."""
        kind = self.method.removesuffix("_floor")
        terms = [loss_of.surrogate(*(kind, *one, self.config.epsilon_is)) for one in known]
        loss = self.beta * torch.stack(terms).mean()
        if kind != self.method:
            currents, _, references, cached, fresh, rights = map(list, zip(*known, strict=True))
            loss = loss + loss_of.floor(currents, references, rights, (cached, fresh))
        return loss

    def rows(self) -> Iterator[dict[str, Any]]:
        """Of both tables, in the order of steps; those of the recovery name a cluster."""
        task, config = self.task, self.config
        network, batches = task.start(), minibatches(config, task.seed, RL_BATCHES)
        cached_noise, fresh_noise, noise = (
            stream(task.seed, number) for number in (REFERENCE_GROUPS, ROLLOUT_GROUPS, RECOVERY_GROUPS)
        )
        old, rights = task.old["train"], task.right["train"].tolist()
        is_exact = self.groups == EXACT
        size = 0 if is_exact else int(self.size)

        def references(places: Any) -> list[list[int]]:
            numbers = cached_noise.random((len(places), size + self.filtered))
            return [
                self.reference_group(old[place].exp().tolist(), rights[place], line)
                for place, line in zip(places, numbers, strict=True)
            ]

        everywhere = references(range(len(rights))) if self.groups == "cached" else []
        measures = self.method != "none" and self.groups in ("fresh", "unfiltered")
        for done in range(config.steps + 1):
            if task.is_evaluated(done):
                yield {**self.identity, "step": done, **self.metrics(network)}
            if done == config.steps:
                return
            if done % self.mu == 0:
                batch = next(batches)
                behavior = task.log_probs(network, batch).detach()
                rollout_policy = Perceptron(config, network.parameters)
                if not is_exact:
                    cached = [everywhere[place] for place in batch] if everywhere else references(batch)
                    uniforms = fresh_noise.random((len(batch), size))
                    fresh = [drawn(one.exp().tolist(), line) for one, line in zip(behavior, uniforms, strict=True)]
            began = done - done % self.mu
            if measures and began in config.recovery_steps and done == began + self.mu - 1:
                for line in self.recovery(network, rollout_policy, noise):
                    yield {**self.identity, "step": done, **line}
            currents = task.log_probs(network, batch)
            loss = task.reward_loss(currents, batch)
            if is_exact:
                loss = loss + task.exact_regularization(self.method, self.beta, currents, batch)
            else:
                of = [rights[place] for place in batch]
                loss = loss + self.surrogate(list(zip(currents, behavior, old[batch], cached, fresh, of, strict=True)))
            network.descend(loss, config.learning_rate)

    def metrics(self, network: Perceptron) -> dict[str, float]:
        """The sweep's, and how many groups would hold no correct response."""
        missing = math.nan
        if self.groups != EXACT:
            missing = self.task.test_means(network, lambda p, q, right: (1 - exact.mass(p, right)) ** self.size)
        return {**self.task.metrics(network), "zero_correct_rate": missing}

    def recovery(self, network: Perceptron, drawer: Perceptron, noise: np.random.Generator) -> Iterator[dict[str, Any]]:
        """A row per cluster with test inputs: how much further groups push log Z than the exact gradient does."""
        task, size = self.task, int(self.size)
        count, inputs = max(2, self.config.recovery_draws // size), len(task.old["test"])
        cached_numbers = noise.random((inputs, count, size + self.filtered))
        fresh_numbers = noise.random((inputs, count, size))
        with torch.no_grad():
            current, behavior = (task.log_probs(model, slice(None), "test") for model in (network, drawer))
        kind = self.method.removesuffix("_floor")
        by_cluster: dict[int, list[dict[str, float]]] = {}
        for place, cluster in enumerate(task.world.clusters["test"].tolist()):
            right, reference = task.right["test"][place].tolist(), task.old["test"][place]

            def gradient(loss: Callable[[Tensor], Tensor], start: Tensor = current[place]) -> Tensor:
                logits = start.clone().requires_grad_()
                return torch.autograd.grad(loss(logits.log_softmax(-1)), logits)[0]

            upwards = gradient(partial(log_mass, right=right))
            wanted = gradient(partial(loss_of.value, kind, reference=reference, correct=right))
            pressures = []
            for group in range(count):
                old = self.reference_group(reference.exp().tolist(), right, cached_numbers[place, group])
                new = drawn(behavior[place].exp().tolist(), fresh_numbers[place, group])
                known: dict[str, Any] = {
                    "behavior": behavior[place],
                    "reference": reference,
                    "cached": old,
                    "fresh": new,
                }
                known |= {"correct": right, "epsilon_is": self.config.epsilon_is}
                got = gradient(partial(loss_of.surrogate, kind, **known))
                pressures.append(float((wanted - got) @ upwards))
            masses = [exact.mass(policy[place].exp().tolist(), right) for policy in (current, behavior)]
            steepness = float(upwards @ upwards)
            by_cluster.setdefault(cluster, []).append(
                {
                    "measured": float(np.mean(pressures)),
                    "variance": float(np.var(pressures, ddof=1)) / count,
                    "predicted": (1 - masses[0]) ** size * steepness,
                    "predicted_at_rollout": (1 - masses[1]) ** size * steepness,
                    "p_correct": masses[0],
                }
            )
        for cluster, lines in sorted(by_cluster.items()):
            means = {name: sum(line[name] for line in lines) / len(lines) for name in lines[0]}
            error = math.sqrt(means.pop("variance") / len(lines))
            yield {"cluster": cluster, **means, "standard_error": error}


def tables(config: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The metrics and the recovery: by seed, method and estimate as the lab plans them, coefficient and step."""
    metrics, recovery = [], []
    for seed, method in itertools.product(range(config.seeds), config.methods):
        looks_at = LOOKS_AT[method].split()
        mus = config.optimizer_steps if "fresh" in looks_at else config.optimizer_steps[:1]
        estimates = [(EXACT, math.inf, mu) for mu in mus]
        for groups in config.reference_groups:
            kinds = {
                "fresh": bool(looks_at),
                "cached": len(looks_at) == 2,
                "unfiltered": len(looks_at) == 2 and method not in UNFILTERED,
            }
            of = (mus if groups == "fresh" else mus[:1]) if kinds[groups] else ()
            estimates += [(groups, float(size), mu) for mu in of for size in config.group_sizes]
        task = SingleTask(config, seed)
        for estimate in estimates:
            for beta in sorted(config.betas) if method != "none" else [0.0]:
                for row in Run(task, method, beta, *estimate).rows():
                    if "cluster" in row:
                        recovery.append(row)
                    else:
                        passes = row["step"] / estimate[2] * config.batch_size / config.environment.train_inputs
                        metrics.append({**row, "passes": passes})
    return pd.DataFrame(metrics), pd.DataFrame(recovery)
