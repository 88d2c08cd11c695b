"""A miniature of the plasticity lab: every kind of change, two methods and more."""

from bandit.plasticity.config import PlasticityConfig
from tests.bandit.conftest import TINY_ENVIRONMENT

TINY = PlasticityConfig(
    methods=("none", "reverse_kl", "cokl", "correct_forward_kl"),
    betas=(0.03, 0.3),
    seeds=2,
    selection_seeds=1,
    steps=20,
    batch_size=16,
    pretrain_steps=20,
    hidden=(8, 8),
    matched_correctness=0.3,
    changes=("narrowed-2", "repaired", "preferred", "moved-2"),
    new_steps=12,
    evaluated_steps=(0, 4, 12),
    evaluated_inputs=50,
    prompts=16,
    group_size=4,
    dtype="float64",
    environment=TINY_ENVIRONMENT,
)
