"""The controlled multi-solution environment (Appendix E.1), drawn with NumPy so that it is the same on every device.

Assumption beyond the paper: the Zipf exponents go to the clusters in their order, correct sets of different clusters
are drawn independently, and "concentration 50" is the sum of the Dirichlet's parameters.

Axes: C clusters, A actions, D input dimensions. Arrays are float64; training casts them.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from bandit.config import EnvironmentConfig
from cokl.policy import CorrectSet


class RandomStream(IntEnum):
    """Independent random streams of a seed."""

    ENVIRONMENT = 0
    INPUTS = 1
    INITIALISATION = 2
    PRETRAINING_BATCHES = 3
    RL_BATCHES = 4
    ROLLOUT_GROUPS = 20
    REFERENCE_GROUPS = 21
    NARROWED = 200


def random_generator(seed: int, stream: IntEnum) -> np.random.Generator:
    """The generator of one purpose of one seed; no purpose disturbs another."""
    return np.random.default_rng([seed, stream])


def some_of(eligible: Tensor, count: int, seed: int, stream: IntEnum) -> Tensor:
    """(C, count): of each cluster's eligible actions, a mask (C, A), some at random; fewer are a subset of more."""
    numbers = torch.from_numpy(random_generator(seed, stream).random(tuple(eligible.shape))).to(eligible.device)
    return numbers.masked_fill(~eligible, torch.inf).argsort(-1)[:, :count]


class Environment:
    """Clusters, their correct actions, the oracle, and the inputs of one seed.

    centers: (C, D). correct: the correct set of each cluster. oracle: (C, A), probabilities; `config.correct_mass` in
    total on the correct actions, uniform on the rest. train_inputs, test_inputs: (N, D), with train_clusters and
    test_clusters: (N,) int64, the cluster that each input came from.
    """

    def __init__(self, config: EnvironmentConfig, seed: int) -> None:
        self.config = config
        rng = random_generator(0 if config.shared_environment else seed, RandomStream.ENVIRONMENT)
        self.centers = torch.from_numpy(rng.normal(scale=config.center_scale, size=(config.clusters, config.input_dim)))
        mask = np.zeros((config.clusters, config.actions), dtype=bool)
        incorrect = (1 - config.correct_mass) / (config.actions - config.correct_actions)
        oracle = np.full((config.clusters, config.actions), incorrect)
        exponents = np.linspace(*config.zipf_exponents, config.clusters)
        for cluster, exponent in enumerate(exponents):
            zipf = np.arange(1, config.correct_actions + 1) ** -exponent
            # A random choice comes in random order, which assigns the Zipf ranks at random.
            chosen = rng.choice(config.actions, config.correct_actions, replace=False)
            conditional = rng.dirichlet(config.concentration * zipf / zipf.sum())
            mask[cluster, chosen] = True
            oracle[cluster, chosen] = config.correct_mass * conditional
        self.correct = CorrectSet.from_mask(torch.from_numpy(mask))
        self.oracle = torch.from_numpy(oracle)
        rng = random_generator(seed, RandomStream.INPUTS)
        self.train_inputs, self.train_clusters = self.draw_inputs(config.train_inputs, rng)
        self.test_inputs, self.test_clusters = self.draw_inputs(config.test_inputs, rng)

    def draw_inputs(self, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """`count` inputs (count, D) around their clusters' centres, and the clusters (count,)."""
        if self.config.balanced_clusters:
            clusters = np.arange(count) % self.config.clusters
        else:
            clusters = rng.integers(self.config.clusters, size=count)
        noise = rng.normal(scale=self.config.noise, size=(count, self.config.input_dim))
        chosen = torch.from_numpy(clusters)
        return self.centers[chosen] + torch.from_numpy(noise), chosen
