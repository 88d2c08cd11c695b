"""The whole sequence lab in miniature against `tests.oracles.sequence_lab`: every row and column of every table."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest

from bandit.sequences import analysis as report
from bandit.sequences.config import SequenceConfig
from bandit.sequences.train import train
from cokl.support.results import Execution
from tests.bandit.same import assert_same
from tests.oracles import sequence_lab as oracle


@dataclass(frozen=True)
class PreciseConfig(SequenceConfig):
    """The lab's own, in an arithmetic that a comparison to 1e-6 needs."""

    dtype: Literal["float32", "float64"] = "float64"


CONFIG = PreciseConfig(
    methods=("none", "reverse_kl", "correct_forward_kl", "cokl"),
    betas=(0.6, 0.01, 0.1),
    seeds=2,
    first_seed=6,
    selection_seeds=1,
    length=3,
    symbols=3,
    forbidden=1,
    clusters=2,
    input_dim=3,
    train_inputs=12,
    test_inputs=5,
    steps=4,
    eval_interval=1,
    batch_size=3,
    group_size=3,
    reference_group_size=2,
    buffer_size=8,
    kl_groups=4,
    hidden=(5, 4),
    pretrain_steps=10,
    pretrain_batch_size=6,
    prior_steps=4,
    learning_rate=0.03,
    new_learning_rate=0.1,
)
BETAS = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0]


@pytest.fixture(scope="module")
def lab() -> pd.DataFrame:
    """What the lab trains."""
    return train(CONFIG, Execution(jobs=1))["sequences"]


@pytest.fixture(scope="module")
def expected() -> pd.DataFrame:
    """What the plain loop does."""
    return oracle.table(CONFIG)


def test_every_row_of_the_labs_table_is_the_plain_loops(lab, expected):
    assert_same(lab, expected)


def test_so_is_a_lab_with_other_options():
    """Without the first term, too; a last step that no interval meets, one learning rate; known prompts and others."""
    other = replace(
        CONFIG,
        methods=SequenceConfig().methods,
        betas=(0.3,),
        seeds=1,
        steps=2,
        eval_interval=3,
        new_learning_rate=None,
        deciding=2,
        kl_prompts=3,
        prior_steps=15,
    )
    table = train(other, Execution(jobs=1))["sequences"]
    assert_same(table, oracle.table(other))
    assert set(table["known_share"].round(6)) == {0.8, 1.0}


def made(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The lab's tables."""
    return {"differences": report.differences(report.measured(table)), "levels": report.levels(table)}


def test_every_table_of_the_report_is_the_plain_loops(lab, expected):
    written = made(lab)
    rows = expected.to_dict("records")
    tables = oracle.final_tables(rows)
    assert list(written) == list(tables)
    for name, table in tables.items():
        assert len(table), name
        assert_same(written[name], pd.DataFrame(table))


def test_the_miniature_has_what_a_wrong_lab_would_get_wrong():
    """Prompts for the filter to leave out, both clusters, coefficients that are neither at an edge nor missed."""
    for number in (6, 7, 1000):
        seed = oracle.Seed(CONFIG, number)
        assert 0 < len(seed.buffer("cokl")) < len(seed.buffer("reverse_kl")) == CONFIG.buffer_size
        for task in (seed.prior, seed.new):
            assert {*task.clusters["train"]} == {*task.clusters["test"]} == {0, 1}
            assert (task.verdicts[0] != task.verdicts[1]).any()
        assert (seed.prior.verdicts != seed.new.verdicts).any()


@pytest.mark.parametrize("draw", range(3))
def test_every_table_of_a_made_up_lab_is_the_plain_loops(draw):
    """Seeds without a known prompt, and without another one; the coefficients that methods choose differ."""
    rng = np.random.default_rng(draw)
    lines = []
    for seed in (0, 1, 2, 1000, 1001):
        for method, betas in (
            ("base", [0.0]),
            ("none", [0.0]),
            *((m, BETAS) for m in ("cokl", "reverse_kl", "entropy")),
        ):
            for beta, step in itertools.product(betas, (0,) if method == "base" else (0, 1, 2, 3, 4)):
                run = {"seed": seed, "mode": "sampled", "method": method, "beta": beta, "step": step}
                row: dict[str, Any] = run | dict(zip(oracle.METRICS, rng.random(len(oracle.METRICS)), strict=True))
                row["prior_correct"] = {"base": 0.9, "none": 0.4}.get(method, 0.65) + 0.1 * rng.random()
                row["new_correct"] = {"base": 0.1, "none": 0.8}.get(method, 0.73) + 0.2 * rng.random()
                row["known_share"] = {0: 0.0, 1: 1.0, 1000: 0.0}.get(seed, 0.6)
                row["known_correct"] = row["prior_correct"] * row["known_share"] ** 2
                row |= {"role": "report" if seed < 1000 else "selection", "kl_prompts": 4 if beta else 0}
                lines.append(row)
    table = pd.DataFrame(lines)
    written, tables = made(table), oracle.final_tables(lines)
    for name, rows in tables.items():
        assert_same(written[name], pd.DataFrame(rows))
    assert {row["at"] for row in tables["differences"]} == {*map("{:g}".format, BETAS), "chosen"}


def test_the_headline_is_the_difference_to_replay_where_both_have_chosen():
    rows = [("correct_forward_kl", "chosen", -4.0), ("correct_forward_kl", "0.1", 9.0), ("reverse_kl", "chosen", 9.0)]
    table = pd.DataFrame(rows, columns=["method", "at", "prior_correct"])
    table = table.assign(prior_correct_half_width=3.0, new_correct=-table["prior_correct"], new_correct_half_width=2.0)
    found = [(one.what, one.mean, one.half_width, one.seeds) for one in report.primary(table, 5).values()]
    assert found == [("correctness on the prior task", -4, 3, 5), ("correctness on the new task", 4, 2, 5)]
    assert report.primary(table[1:], 5) == {}
