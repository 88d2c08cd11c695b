"""The whole task-shift lab in miniature against `tests.oracles.shift_lab`: every row and column of every table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from bandit.config import EnvironmentConfig
from bandit.engine.environment import random_generator
from bandit.engine.two_tasks.config import METHODS
from bandit.engine.two_tasks.tasks import ShiftStream
from bandit.shift.analysis import tables_of
from bandit.shift.config import ShiftConfig
from bandit.shift.scores import Scored, at_equal_adaptation, score
from bandit.shift.train import train
from cokl.support.results import Execution
from tests.bandit.same import assert_same
from tests.bandit.shift.tables import POINTS, shift_table
from tests.oracles import scores
from tests.oracles import shift_lab as oracle

CONFIG = ShiftConfig(
    methods=("none", "reverse_kl", "correct_forward_kl", "cokl", "cokl_floor"),
    betas=(1.0, 0.03, 0.2),
    seeds=2,
    first_seed=3,
    selection_seeds=1,
    steps=6,
    eval_interval=4,
    batch_size=3,
    group_size=3,
    reference_group_size=1,
    buffer_size=10,
    kl_groups=4,
    kl_sweep=(2, 5),
    kl_sweep_methods=("cokl",),
    pass_draws=4,
    hidden=(5, 4),
    pretrain_steps=10,
    pretrain_batch_size=6,
    prior_steps=5,
    learning_rate=0.03,
    new_learning_rate=0.1,
    dtype="float64",
    environment=EnvironmentConfig(
        clusters=2, input_dim=3, actions=4, correct_actions=2, train_inputs=12, test_inputs=9, correct_mass=0.5
    ),
)


@pytest.fixture(scope="module")
def lab() -> pd.DataFrame:
    """What the lab trains."""
    return train(CONFIG, Execution(jobs=1))["shift"]


@pytest.fixture(scope="module")
def expected() -> pd.DataFrame:
    """What the plain loop does."""
    return oracle.table(CONFIG)


def test_every_row_of_the_labs_table_is_the_plain_loops(lab, expected):
    assert_same(lab, expected)


def test_so_is_a_lab_with_other_options():
    """Every method, with one learning rate."""
    other = replace(
        CONFIG,
        methods=METHODS,
        betas=(0.3,),
        seeds=1,
        steps=2,
        eval_interval=2,
        kl_sweep=(),
        new_learning_rate=None,
    )
    assert_same(train(other, Execution(jobs=1))["shift"], oracle.table(other))


def test_so_is_a_lab_whose_verifier_errs():
    """Every method; a wrong response sometimes counts."""
    erring = replace(CONFIG, methods=METHODS, betas=(0.3,), seeds=1, kl_sweep=(), success_of_wrong=0.4)
    assert_same(train(erring, Execution(jobs=1))["shift"], oracle.table(erring))


def test_verdicts_without_errors_take_nothing_from_the_other_numbers(lab, monkeypatch):
    """Not a byte changes, whatever the verdicts' numbers are."""
    drawn = random_generator

    def elsewhere(seed, number):
        return drawn(seed + 50 * (number in (ShiftStream.REFERENCE_VERDICTS, ShiftStream.KL_VERDICTS)), number)

    monkeypatch.setattr("bandit.shift.train.random_generator", elsewhere)
    again = train(CONFIG, Execution(jobs=1))["shift"]
    pd.testing.assert_frame_equal(again, lab, check_exact=True)


def test_every_table_of_the_report_is_the_plain_loops(lab, expected):
    written, tables = (
        tables_of(Scored.of(lab)),
        oracle.final_tables(expected.to_dict("records")),
    )
    assert list(written) == list(tables)
    for name, table in tables.items():
        assert len(table), name
        assert_same(written[name], pd.DataFrame(table))


def test_the_miniature_has_what_a_wrong_lab_would_get_wrong():
    """Prompts for the filter to leave out, and both clusters, whose correct actions differ between the tasks."""
    for number in (CONFIG.first_seed, CONFIG.first_seed + 1, 1000):
        seed = oracle.Seed(CONFIG, number)
        assert 0 < len(seed.buffer("cokl")) < len(seed.buffer("forward_kl")) == CONFIG.buffer_size
        for one in (seed.prior, seed.new):
            assert {*one.clusters["train"]} == {*one.clusters["test"]} == {0, 1}
        assert (seed.prior.correct != seed.new.correct).any()


@pytest.mark.parametrize("jitter", [0.03, 0.06])
def test_every_table_of_a_made_up_lab_is_the_plain_loops(jitter):
    """CoKL adapts through 90 three times: the reported seeds retain most at the first crossing, the selection
    seeds at the last. Five reported seeds, several KL batches.
    """
    ours: dict[float, tuple] = {
        0.1: (0.72, 0.88, 0.3, 0.4),
        1.0: (0.7, 0.78, 0.1, 0.2),
        3.0: (0.6, 0.88, 0.1, 0.1),
        10.0: (0.65, 0.5, 0.05, 0.1),
    }
    lab = shift_table({**POINTS, "cokl": ours}, jitter=jitter)
    lab.loc[(lab["role"] == "selection") & (lab["beta"] == 0.1) & (lab["step"] > 0), "prior_correct"] -= 0.3
    written, tables = tables_of(Scored.of(lab)), oracle.final_tables(lab.to_dict("records"))
    for name, table in tables.items():
        assert len(table), name
        assert_same(written[name], pd.DataFrame(table))
    rows: Any = lab.to_dict("records")
    equal = scores.at_equal_adaptation(scores.scored(rows))
    assert_same(at_equal_adaptation(score(lab)), pd.DataFrame(equal))
