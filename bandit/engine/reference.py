"""The frozen reference policy: a pretrained MLP, and what every run of its seed shares.

Axes: N inputs, A actions, D input dimensions, P parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bandit.config import TrainingConfig
from bandit.engine.environment import Environment, RandomStream, random_generator
from bandit.engine.networks import StackedMLP, Trainer, initial_parameters
from cokl.policy import CorrectSet, Policy


def layer_sizes(config: Any) -> tuple[int, ...]:
    """Widths of the MLP's layers, input and output included. config: with `environment` and `hidden`."""
    return (config.environment.input_dim, *config.hidden, config.environment.actions)


def minibatches(config: TrainingConfig, seed: int, stream: RandomStream) -> Iterator[Tensor]:
    """Endless minibatches of training-input indices, (batch_size,) int64; the same for all methods of a seed."""
    rng = random_generator(seed, stream)
    inputs = config.environment.train_inputs
    left = np.empty(0, dtype=np.int64)
    while True:
        if config.minibatch == "with_replacement":
            yield torch.from_numpy(rng.integers(inputs, size=config.batch_size))
        else:
            while len(left) < config.batch_size:
                left = np.concatenate([left, rng.permutation(inputs)])
            yield torch.from_numpy(left[: config.batch_size])
            left = left[config.batch_size :]


def cross_entropy_gradient(logits: Tensor, labels: Tensor) -> Tensor:
    """(R, B, A): logit gradient of the soft-label cross-entropy; labels are (B, A) probabilities."""
    return logits.softmax(-1) - labels


def pretrain(config: TrainingConfig, seed: int, device: str, dtype: torch.dtype) -> Tensor:
    """(P,): parameters of the reference, fitted to the oracle with soft-label cross-entropy on training inputs."""
    environment = Environment(config.environment, seed)
    rng = random_generator(seed, RandomStream.INITIALISATION)
    start = initial_parameters(layer_sizes(config), config.init_scale, rng)
    mlp = StackedMLP(layer_sizes(config), start.to(device, dtype)[None])
    trainer = Trainer(mlp, config, config.pretrain_learning_rate)
    inputs, clusters = environment.train_inputs.to(device, dtype), environment.train_clusters.to(device)
    oracle = environment.oracle.to(device, dtype)
    batches = minibatches(config, seed, RandomStream.PRETRAINING_BATCHES)
    for _ in range(config.pretrain_steps):
        batch = next(batches).to(device)
        labels = oracle[clusters[batch]]
        trainer.step(inputs[batch][None], partial(cross_entropy_gradient, labels=labels))
    return mlp.parameters()[0]


@dataclass(frozen=True)
class Split:
    """Inputs (N, D) of one seed, the reference's log-probabilities (N, A) on them, and their correct sets (N, K)."""

    inputs: Tensor
    reference_log_probs: Tensor
    correct: CorrectSet

    def __getitem__(self, index: slice | Tensor) -> Split:
        """Some of the inputs."""
        return Split(self.inputs[index], self.reference_log_probs[index], self.correct[index])

    def reference(self, index: slice | Tensor) -> Policy:
        """The reference policy on the chosen inputs, with a leading runs axis of one: (1, B, A)."""
        return Policy.from_log_probs(self.reference_log_probs[index][None], self.correct[index][None])


@dataclass(frozen=True)
class SeedTask:
    """Everything that the runs of one seed share: the reference's parameters (P,) and both splits."""

    seed: int
    parameters: Tensor
    train: Split
    test: Split


def seed_task(config: TrainingConfig, seed: int, parameters: Tensor) -> SeedTask:
    """Rebuild a seed's task from the reference's parameters (P,), on their device and in their dtype."""
    environment = Environment(config.environment, seed)
    mlp = StackedMLP(layer_sizes(config), parameters[None])

    def split(inputs: Tensor, clusters: Tensor) -> Split:
        inputs = inputs.to(parameters)
        correct = environment.correct[clusters]
        correct = CorrectSet(correct.actions.to(parameters.device), None, correct.num_actions)
        return Split(inputs, mlp.forward(inputs[None])[0].log_softmax(-1), correct)

    return SeedTask(
        seed,
        parameters,
        split(environment.train_inputs, environment.train_clusters),
        split(environment.test_inputs, environment.test_clusters),
    )
