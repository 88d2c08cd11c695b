"""The controlled experiment's world, reference and metrics for one seed: one network, one input at a time, by autograd.

Written from the paper (Eqs. 5-10, Appendix E.1) and from what the engine documents of its random streams. It reads the
fields of a configuration and computes in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.oracles import exact
from tests.oracles import shift as loss_of
from tests.oracles.network import Perceptron, initial
from tests.oracles.worlds import world

INITIALISATION, PRETRAINING_BATCHES, RL_BATCHES = 2, 3, 4
"""The streams, by number, as the engine documents them."""


def stream(seed: int, number: int) -> np.random.Generator:
    """One purpose of one seed."""
    return np.random.default_rng([seed, number])


def minibatches(config: Any, seed: int, number: int) -> Iterator[list[int]]:
    """Positions among the training inputs: independent draws, or shuffled epochs one after the other."""
    rng, count = stream(seed, number), config.environment.train_inputs
    waiting: list[int] = []
    while True:
        if config.minibatch == "with_replacement":
            yield [int(place) for place in rng.integers(count, size=config.batch_size)]
            continue
        while len(waiting) < config.batch_size:
            waiting += [int(place) for place in rng.permutation(count)]
        yield [waiting.pop(0) for _ in range(config.batch_size)]


class SingleTask:
    """One seed: its world, and the reference that pretraining makes."""

    def __init__(self, config: Any, seed: int) -> None:
        self.config, self.seed = config, seed
        self.world = world(config.environment, seed)
        self.right = {split: self.world.correct[clusters] for split, clusters in self.world.clusters.items()}
        widths = [config.environment.input_dim, *config.hidden, config.environment.actions]
        self.reference = Perceptron(config, initial(widths, config.init_scale, stream(seed, INITIALISATION)))
        batches = minibatches(config, seed, PRETRAINING_BATCHES)
        for _ in range(config.pretrain_steps):
            batch = next(batches)
            labels = torch.tensor(self.world.oracle[self.world.clusters["train"][batch]])
            cross_entropy = -(labels * self.log_probs(self.reference, batch)).sum(-1).mean()
            self.reference.descend(cross_entropy, config.pretrain_learning_rate)
        with torch.no_grad():
            everything = slice(None)
            self.old = {split: self.log_probs(self.reference, everything, split) for split in ("train", "test")}

    def log_probs(self, network: Perceptron, places: Any, split: str = "train") -> Tensor:
        """(B, A)."""
        return network.log_probs(torch.tensor(self.world.inputs[split][places]))

    def start(self) -> Perceptron:
        """A network of its own at the reference, with a fresh Adam."""
        return Perceptron(self.config, self.reference.parameters)

    def reward_loss(self, currents: Tensor, batch: Sequence[int]) -> Tensor:
        """Minus the mean probability of a correct action."""
        return -(currents.exp() * torch.tensor(self.right["train"][batch])).sum(-1).mean()

    def exact_regularization(self, method: str, beta: float, currents: Tensor, batch: Sequence[int]) -> Tensor:
        """Mean of beta times the regularizer over a minibatch, plus the floor where the method's name ends so."""
        kind, rights = method.removesuffix("_floor"), self.right["train"][batch].tolist()
        if kind == "none":
            return torch.zeros((), dtype=torch.float64)
        references = self.old["train"][batch]
        terms = [loss_of.value(kind, *known) for known in zip(currents, references, rights, strict=True)]
        loss = beta * torch.stack([torch.as_tensor(term) for term in terms]).mean()
        if method != kind:
            loss = loss + loss_of.floor(list(currents), list(references), rights, None)
        return loss

    def train_exactly(self, method: str, beta: float) -> Iterator[tuple[int, Perceptron]]:
        """The network after so many steps on max E[Z - beta D], from none to all of them."""
        network, batches = self.start(), minibatches(self.config, self.seed, RL_BATCHES)
        for done in range(self.config.steps):
            yield done, network
            batch = next(batches)
            currents = self.log_probs(network, batch)
            loss = self.reward_loss(currents, batch) + self.exact_regularization(method, beta, currents, batch)
            network.descend(loss, self.config.learning_rate)
        yield self.config.steps, network

    def test_means(self, network: Perceptron, measure: Callable[..., float]) -> float:
        """Mean over the test inputs of `measure` of policy, reference and what is correct."""
        with torch.no_grad():
            now = self.log_probs(network, slice(None), "test").exp().tolist()
        rows = zip(now, self.old["test"].exp().tolist(), self.right["test"].tolist(), strict=True)
        return float(np.mean([measure(*row) for row in rows]))

    def metrics(self, network: Perceptron) -> dict[str, float]:
        """What the sweep's table says of a policy."""
        draws = self.config.coverage_draws

        def conditional_kl(p: list[float], q: list[float], right: list[bool]) -> float:
            return exact.kl(exact.conditioned(q, right), exact.conditioned(p, right), np)

        return {
            "p_correct": self.test_means(network, lambda p, q, right: exact.mass(p, right)),
            f"coverage_at_{draws}": self.test_means(network, lambda p, q, right: exact.coverage(p, right, draws)),
            f"coverage_at_{draws}_correct": self.test_means(
                network, lambda p, q, right: exact.coverage(exact.conditioned(p, right), right, draws)
            ),
            "conditional_kl": self.test_means(network, conditional_kl),
        }

    def is_evaluated(self, done: int) -> bool:
        """Every interval, and at the end."""
        return done % self.config.eval_interval == 0 or done == self.config.steps
