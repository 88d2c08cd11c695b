"""A miniature of the task-shift lab that trains in a fraction of a second."""

import pytest

from bandit.config import EnvironmentConfig
from bandit.shift.config import ShiftConfig

TINY_SHIFT = ShiftConfig(
    methods=("none", "cokl", "forward_kl"),
    betas=(0.1, 1.0),
    seeds=1,
    selection_seeds=1,
    steps=4,
    eval_interval=2,
    batch_size=3,
    group_size=3,
    reference_group_size=2,
    buffer_size=12,
    kl_groups=4,
    kl_sweep=(2, 5),
    kl_sweep_methods=("cokl",),
    hidden=(5,),
    pretrain_steps=10,
    pretrain_batch_size=8,
    prior_steps=4,
    learning_rate=0.05,
    dtype="float64",
    environment=EnvironmentConfig(
        clusters=2, input_dim=3, actions=4, correct_actions=2, train_inputs=40, test_inputs=6, correct_mass=0.5
    ),
)


@pytest.fixture
def tiny_shift() -> ShiftConfig:
    """Two seeds, both modes, three methods with two coefficients, and a KL-batch sweep of two sizes for one of them."""
    return TINY_SHIFT
