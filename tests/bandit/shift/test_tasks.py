"""A buffer without a correct response."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from bandit.config import EnvironmentConfig
from bandit.engine.networks import initial_parameters
from bandit.shift.config import ShiftConfig
from bandit.shift.train import layer_sizes, shift_task
from cokl import methods
from cokl.support.errors import InputError

CONFIG = ShiftConfig(
    environment=EnvironmentConfig(
        clusters=40, input_dim=50, actions=30, correct_actions=6, train_inputs=600, test_inputs=50
    )
)


def uniform_policy(config: ShiftConfig) -> torch.Tensor:
    """Parameters (P,) of a network that gives every action the same probability."""
    return torch.zeros_like(initial_parameters(layer_sizes(config), 1.0, np.random.default_rng(0)))


def test_an_empty_buffer_is_explained():
    config = dataclasses.replace(CONFIG, buffer_size=2, reference_group_size=1)
    parameters = uniform_policy(config)
    buffers = [shift_task(config, seed, parameters).buffer for seed in range(20)]
    empty = next(buffer for buffer in buffers if not buffer.responses.rewards.any())
    with pytest.raises(InputError, match="cokl: no prompt of the buffer has a correct reference response; make"):
        empty.used_by(methods.get("cokl"))
