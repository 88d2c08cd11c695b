"""The bandit's data from the words of Appendix E.1 and E.3, in NumPy alone: a task's inputs, clusters and correct sets.

Random numbers are drawn as the simulator documents: a generator for each seed and purpose, in the order written here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

ENVIRONMENT, INPUTS, OVERLAP = 0, 1, 100


@dataclass
class World:
    """One task. centers (C, D); correct (C, A) bool; oracle (C, A); inputs and clusters by split."""

    centers: np.ndarray
    correct: np.ndarray
    oracle: np.ndarray
    inputs: dict[str, np.ndarray]
    clusters: dict[str, np.ndarray]


def world(config: Any, seed: int) -> World:
    """The single task of a seed; config: fields as in E.1."""
    rng = np.random.default_rng([0 if config.shared_environment else seed, ENVIRONMENT])
    shape = (config.clusters, config.actions)
    centers = rng.normal(scale=config.center_scale, size=(config.clusters, config.input_dim))
    correct, oracle = np.zeros(shape, bool), np.zeros(shape)
    first, last = config.zipf_exponents
    for cluster in range(config.clusters):
        exponent = first + (last - first) * cluster / (config.clusters - 1)
        zipf = np.array([rank**-exponent for rank in range(1, config.correct_actions + 1)])
        chosen = rng.choice(config.actions, config.correct_actions, replace=False)
        shares = rng.dirichlet(config.concentration * zipf / zipf.sum())
        correct[cluster, chosen] = True
        oracle[cluster] = (1 - config.correct_mass) / (config.actions - config.correct_actions)
        oracle[cluster, chosen] = config.correct_mass * shares
    rng = np.random.default_rng([seed, INPUTS])
    inputs, clusters = {}, {}
    for split, count in (("train", config.train_inputs), ("test", config.test_inputs)):
        if config.balanced_clusters:
            clusters[split] = np.array([number % config.clusters for number in range(count)])
        else:
            clusters[split] = rng.integers(config.clusters, size=count)
        noise = rng.normal(scale=config.noise, size=(count, config.input_dim))
        inputs[split] = centers[clusters[split]] + noise
    return World(centers, correct, oracle, inputs, clusters)


def two_worlds(config: Any, seed: int) -> dict[str, World]:
    """The prior and the new task of a seed, whose partners share no correct action."""
    prior, new = world(config, 2 * seed), world(config, 2 * seed + 1)
    rng = np.random.default_rng([seed, OVERLAP])
    correct, oracle = np.zeros_like(new.correct), np.zeros_like(new.oracle)
    for cluster in range(config.clusters):
        partners, own = np.flatnonzero(prior.correct[cluster]), np.flatnonzero(new.correct[cluster])
        others = [action for action in range(config.actions) if action not in partners]
        chosen = rng.permutation(rng.choice(others, len(own), replace=False)).astype(int)
        correct[cluster, chosen] = True
        oracle[cluster] = (1 - config.correct_mass) / (config.actions - len(own))
        oracle[cluster, chosen] = new.oracle[cluster, own]
    new.correct, new.oracle = correct, oracle
    return {"prior": prior, "new": new}
