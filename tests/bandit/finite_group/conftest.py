"""A miniature of the finite-group lab."""

from bandit.finite_group.config import FiniteGroupConfig
from tests.bandit.conftest import TINY_ENVIRONMENT

TINY = FiniteGroupConfig(
    methods=("none", "cokl", "correct_forward_kl"),
    betas=(0.1, 0.5),
    seeds=2,
    steps=12,
    eval_interval=6,
    batch_size=16,
    pretrain_steps=20,
    hidden=(8, 8),
    group_sizes=(1, 4),
    optimizer_steps=(1, 3),
    environment=TINY_ENVIRONMENT,
)
