"""Minibatches that walk through epochs, and what training starts from."""

import dataclasses

import pytest
import torch

from bandit.engine.environment import RandomStream, random_generator
from bandit.engine.networks import initial_parameters
from bandit.engine.reference import minibatches


def test_minibatches_walk_through_epochs(tiny):
    config = dataclasses.replace(tiny, minibatch="epochs", batch_size=50)
    batches = minibatches(config, 0, RandomStream.RL_BATCHES)
    epoch = torch.cat([next(batches) for _ in range(4)])
    assert epoch.sort().values.tolist() == list(range(200))


def test_initial_parameters_are_torchs_default_distribution():
    parameters = initial_parameters((64, 128), 1.0, random_generator(0, RandomStream.INITIALISATION))
    assert parameters.abs().max().item() <= 1 / 8
    assert parameters.std().item() == pytest.approx(1 / 8 / 3**0.5, rel=0.02)
