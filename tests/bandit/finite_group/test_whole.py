"""The whole finite-group lab in miniature against `tests.oracles.finite_group_lab`: every row."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from bandit.config import EnvironmentConfig
from bandit.finite_group.config import FiniteGroupConfig
from bandit.finite_group.train import train
from cokl.support.results import Execution
from tests.bandit.same import assert_same
from tests.oracles import finite_group_lab as oracle

CONFIG = FiniteGroupConfig(
    methods=("none", "cokl", "correct_forward_kl", "reverse_kl"),
    betas=(2.0, 0.4),
    seeds=2,
    steps=6,
    eval_interval=4,
    batch_size=3,
    group_sizes=(1, 3),
    optimizer_steps=(1, 2),
    epsilon_is=0.05,
    learning_rate=0.1,
    max_gradient_norm=0.4,
    hidden=(5, 4),
    pretrain_steps=9,
    pretrain_learning_rate=0.05,
    coverage_draws=3,
    dtype="float64",
    environment=EnvironmentConfig(
        clusters=3, input_dim=3, actions=5, correct_actions=2, train_inputs=11, test_inputs=7, correct_mass=0.4
    ),
)


@pytest.fixture(scope="module")
def expected() -> pd.DataFrame:
    """What the plain loop does."""
    return oracle.table(CONFIG)


def test_every_row_is_the_plain_loops(expected):
    assert_same(train(CONFIG, Execution(jobs=1))["finite_group"], expected)


def test_so_is_a_lab_with_other_methods():
    """The floor, and regularizers of each kind of estimate; one mu, fresh and cached groups."""
    other = replace(
        CONFIG,
        methods=("cokl_floor", "forward_kl", "correct_reverse_kl", "entropy"),
        betas=(0.4,),
        seeds=1,
        group_sizes=(3,),
        optimizer_steps=(2,),
        reference_groups=("cached", "fresh"),
    )
    assert_same(train(other, Execution(jobs=1))["finite_group"], oracle.table(other))


def test_the_miniature_has_what_a_wrong_lab_would_get_wrong(expected):
    """Every cluster on both sides, and estimates that all differ."""
    for seed in range(2):
        task = oracle.SingleTask(CONFIG, seed)
        assert {*task.world.clusters["train"]} == {*task.world.clusters["test"]} == {0, 1, 2}
    last = expected[expected["step"] == 6]
    assert last["conditional_kl"].round(7).is_unique
