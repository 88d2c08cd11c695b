"""Both phases of the plasticity lab with answers of many tokens, as plain loops over listed responses.

The task, the networks, the drawing of responses and the losses of one prompt are those of `tests.oracles.sequence_lab`;
here are what phase 1 and phase 2 do with them, which answers a changed reward accepts, and what is measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tests.oracles.sequence_lab import (
    TASK,
    UNFILTERED,
    Network,
    base_model,
    draw,
    grpo,
    listed,
    stream,
    surrogate,
    task,
)

CACHE, BATCHES, ROLLOUTS, NEW_BATCHES, NEW_ROLLOUTS, COUNTED = range(202, 208)


def verdicts(config: Any, number: int, change: str) -> np.ndarray:
    """(C, A): which responses are correct in each cluster of a task after a change; "" for none."""
    rng = stream(number, TASK)
    count, states, symbols = config.clusters, config.states, config.symbols
    rng.normal(size=(count, config.input_dim))
    leads_to = rng.integers(states, size=(count, states + 1, symbols))
    ranks = rng.random((count, states, symbols)).argsort(-1)
    kind, _, size = change.partition("-")
    right = np.zeros((count, symbols**config.length), bool)
    for cluster, (place, response) in itertools.product(range(count), enumerate(listed(config))):
        state, right[cluster, place] = 0, True
        for token in response:
            rank = ranks[cluster, state, token]
            if kind == "moved" and state == 0:
                allowed = rank < int(size)
            else:
                allowed = rank >= config.forbidden + (int(size) if kind == "narrowed" else 0)
            if not allowed:
                right[cluster, place] = False
                break
            state = leads_to[cluster, state, token]
    return right


class Seed:
    """All that the policies of a seed share."""

    def __init__(self, config: Any, seed: int) -> None:
        self.config, self.seed = config, seed
        self.prior = task(config, 2 * seed)
        self.base = Network(config, base_model(config, seed, self.prior, task(config, 2 * seed + 1)))
        numbers = stream(seed, CACHE).random((config.train_inputs, max(config.cached), config.length))
        self.cached = draw(config, self.base, self.prior.inputs["train"], numbers)

    def batch(self, batches: np.random.Generator, rollouts: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Training prompts of a step, and the numbers that draw G responses to each."""
        config = self.config
        chosen = batches.integers(config.train_inputs, size=config.prompts)
        return chosen, rollouts.random((config.prompts, config.group_size, config.length))

    def phase_1(self, method: str, beta: float, size: int) -> Network:
        """The final network; that of the reference for the method "reference"."""
        config, network = self.config, Network(self.config, self.base.parameters)
        right = verdicts(config, 2 * self.seed, "")[self.prior.clusters["train"]]
        batches, rollouts = stream(self.seed, BATCHES), stream(self.seed, ROLLOUTS)
        for _ in range(config.steps if method != "reference" else 0):
            chosen, uniforms = self.batch(batches, rollouts)
            inputs = self.prior.inputs["train"][chosen]
            groups = draw(config, network, inputs, uniforms)
            policies, references = network.responses(inputs), self.base.responses(inputs).detach()
            loss = torch.zeros((), dtype=torch.float64)
            for prompt, policy, reference, group in zip(chosen, policies, references, groups, strict=True):
                loss = loss + grpo(config, policy, right[prompt], group)
                kept = self.cached[prompt][:size]
                if method in UNFILTERED or not size or right[prompt][kept].any():
                    loss = loss + beta * surrogate(method, policy, reference, right[prompt], kept, group)
            network.descend(loss / config.prompts, config.learning_rate)
        return network

    def reached(self, network: Network) -> dict[str, float]:
        """Means over the test prompts."""
        config, inputs = self.config, self.prior.inputs["test"]
        right = verdicts(config, 2 * self.seed, "")[self.prior.clusters["test"]]
        with torch.no_grad():
            now, old = (model.responses(inputs).exp().numpy() * right for model in (network, self.base))
        mass, given = now.sum(-1), now / now.sum(-1, keepdims=True)
        old = old / old.sum(-1, keepdims=True)
        drawn = draw(config, network, inputs, stream(self.seed, COUNTED).random((len(inputs), 64, config.length)))
        distinct = [len({one for one in group if ok[one]}) for group, ok in zip(drawn, right, strict=True)]

        def mean(weights: np.ndarray, values: np.ndarray) -> float:
            return float(np.where(right, weights * np.where(right, values, 0), 0).sum(-1).mean())

        with np.errstate(divide="ignore", invalid="ignore"):
            return {
                "p_correct": float(mass.mean()),
                "distinct_at_64": float(np.mean(distinct)),
                "conditional_entropy": mean(given, -np.log(given)),
                "conditional_kl": mean(old, np.log(old / given)),
            }

    def phase_2(self, network: Network, change: str) -> list[tuple[int, float, float]]:
        """Step, mean new reward and share of test prompts below one half, of a copy of the network."""
        config, network = self.config, Network(self.config, network.parameters)
        accepted = verdicts(config, 2 * self.seed, change)
        right, shown = (accepted[self.prior.clusters[split]] for split in ("train", "test"))
        batches, rollouts = stream(self.seed, NEW_BATCHES), stream(self.seed, NEW_ROLLOUTS)
        rows: list[tuple[int, float, float]] = []
        for done in range(config.new_steps + 1):
            if done in config.evaluated_steps:
                with torch.no_grad():
                    mass = (network.responses(self.prior.inputs["test"]).exp().numpy() * shown).sum(-1)
                rows.append((done, float(mass.mean()), float((mass < 0.5).mean())))
            chosen, uniforms = self.batch(batches, rollouts)
            inputs = self.prior.inputs["train"][chosen]
            groups: Sequence[Any] = draw(config, network, inputs, uniforms)
            policies = network.responses(inputs)
            losses = [grpo(config, *prompt) for prompt in zip(policies, right[chosen], groups, strict=True)]
            network.descend(torch.stack(losses).mean(), config.learning_rate)
        return rows
