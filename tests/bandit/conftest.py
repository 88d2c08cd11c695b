"""A miniature of the controlled experiment that trains in well under a second."""

import pytest

from bandit.config import EnvironmentConfig
from bandit.sweep.config import SweepConfig

TINY_ENVIRONMENT = EnvironmentConfig(
    clusters=4, input_dim=6, actions=20, correct_actions=3, train_inputs=200, test_inputs=100
)
TINY = SweepConfig(
    methods=("none", "forward_kl", "cokl"),
    betas=(0.01, 0.1),
    seeds=2,
    steps=20,
    eval_interval=10,
    batch_size=16,
    pretrain_steps=20,
    hidden=(8, 8),
    environment=TINY_ENVIRONMENT,
)

_SIZES = "--clusters=4 --input-dim=6 --actions=20 --correct-actions=3 --train-inputs=200 --test-inputs=100"
_TRAINING = "--steps=20 --eval-interval=10 --batch-size=16 --pretrain-steps=20 --hidden 8 8"
TINY_FLAGS = f"{_SIZES} {_TRAINING}".split()


@pytest.fixture
def tiny() -> SweepConfig:
    """The miniature sweep: two seeds, one unregularized run and two methods with two coefficients each."""
    return TINY


@pytest.fixture
def tiny_flags() -> list[str]:
    """The same miniature as command-line flags, without methods, betas and seeds."""
    return TINY_FLAGS
