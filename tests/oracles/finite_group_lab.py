"""The whole finite-group lab as one plain loop: the regularizer in groups of G.

Written from the paper (Eqs. 11-20, Appendix B) and from what the lab's docstrings say of its random numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
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

ROLLOUT_GROUPS, REFERENCE_GROUPS = 20, 21
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


class Run:
    """One run: a method at a coefficient, and how its regularizer is estimated."""

    def __init__(self, task: SingleTask, method: str, beta: float, groups: str, size: float, mu: int) -> None:
        self.task, self.config, self.method, self.beta = task, task.config, method, beta
        self.groups, self.size, self.mu = groups, size, mu
        self.filtered = method.removesuffix("_floor") not in UNFILTERED
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
        """In the order of steps."""
        task, config = self.task, self.config
        network, batches = task.start(), minibatches(config, task.seed, RL_BATCHES)
        cached_noise, fresh_noise = (stream(task.seed, number) for number in (REFERENCE_GROUPS, ROLLOUT_GROUPS))
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
        for done in range(config.steps + 1):
            if task.is_evaluated(done):
                yield {**self.identity, "step": done, **self.metrics(network)}
            if done == config.steps:
                return
            if done % self.mu == 0:
                batch = next(batches)
                behavior = task.log_probs(network, batch).detach()
                if not is_exact:
                    cached = [everywhere[place] for place in batch] if everywhere else references(batch)
                    uniforms = fresh_noise.random((len(batch), size))
                    fresh = [drawn(one.exp().tolist(), line) for one, line in zip(behavior, uniforms, strict=True)]
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


def table(config: Any) -> pd.DataFrame:
    """By seed, method and estimate as the lab plans them, coefficient and step."""
    rows = []
    for seed, method in itertools.product(range(config.seeds), config.methods):
        looks_at = LOOKS_AT[method].split()
        mus = config.optimizer_steps if "fresh" in looks_at else config.optimizer_steps[:1]
        estimates = [(EXACT, math.inf, mu) for mu in mus]
        for groups in config.reference_groups:
            possible = bool(looks_at) if groups == "fresh" else len(looks_at) == 2
            of = (mus if groups == "fresh" else mus[:1]) if possible else ()
            estimates += [(groups, float(size), mu) for mu in of for size in config.group_sizes]
        task = SingleTask(config, seed)
        for estimate in estimates:
            for beta in sorted(config.betas) if method != "none" else [0.0]:
                for row in Run(task, method, beta, *estimate).rows():
                    passes = row["step"] / estimate[2] * config.batch_size / config.environment.train_inputs
                    rows.append({**row, "passes": passes})
    return pd.DataFrame(rows)
