"""The whole sequence lab in miniature against `tests.oracles.sequence_lab`: every row and column of every table."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
import pytest

from bandit.engine.two_tasks.config import METHODS
from bandit.sequences import analysis as report
from bandit.sequences.config import SequenceConfig
from bandit.sequences.train import train
from cokl.support.results import Execution
from tests.bandit.same import assert_same
from tests.oracles import scores
from tests.oracles import sequence_lab as oracle


@dataclass(frozen=True)
class PreciseConfig(SequenceConfig):
    """The lab's own, in an arithmetic that a comparison to 1e-6 needs."""

    dtype: Literal["float32", "float64"] = "float64"


CONFIG = PreciseConfig(
    methods=("none", "reverse_kl", "correct_forward_kl", "cokl", "cokl_floor"),
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
    pass_draws=4,
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
    """Every method; a last step that no interval meets, one learning rate, token means."""
    other = replace(
        CONFIG,
        methods=METHODS,
        betas=(0.3,),
        seeds=1,
        steps=2,
        eval_interval=3,
        new_learning_rate=None,
        token_reduction="mean",
        deciding=2,
    )
    assert_same(train(other, Execution(jobs=1))["sequences"], oracle.table(other))


def test_every_table_of_the_report_is_the_plain_loops(lab, expected):
    written = report.tables_of(lab)
    rows = expected.to_dict("records")
    tables = oracle.final_tables(rows)
    assert list(written) == list(tables)
    for name, table in tables.items():
        assert len(table), name
        assert_same(written[name], pd.DataFrame(table))
    # Two seeds do not tell from zero what is learned in samples here.
    assert scores.select(tables["leads"], mode="sampled") == []
    compared = report.primary(written["leads"], 2)
    assert (compared.verdict, compared.measured[:16]) == (None, "not to be had: o")


def test_the_miniature_has_what_a_wrong_lab_would_get_wrong():
    """Prompts for the filter to leave out, both clusters, coefficients that are neither at an edge nor missed."""
    for number in (6, 7, 1000):
        seed = oracle.Seed(CONFIG, number)
        assert 0 < len(seed.buffer("cokl")) < len(seed.buffer("forward_kl")) == CONFIG.buffer_size
        for task in (seed.prior, seed.new):
            assert {*task.clusters["train"]} == {*task.clusters["test"]} == {0, 1}
            assert (task.verdicts[0] != task.verdicts[1]).any()
        assert (seed.prior.verdicts != seed.new.verdicts).any()


@pytest.mark.parametrize("draw", range(3))
def test_every_table_of_a_made_up_lab_is_the_plain_loops(draw):
    """Adaptation goes up and down through 90: several pairs of coefficients for each method, at three seeds and two."""
    rng = np.random.default_rng(draw)
    lines = []
    for seed, mode in itertools.product((0, 1, 2, 1000, 1001), ("exact", "sampled")):
        for method, betas in (
            ("base", [0.0]),
            ("none", [0.0]),
            *((m, BETAS) for m in ("cokl", "reverse_kl", "entropy")),
        ):
            for beta, step in itertools.product(betas, (0,) if method == "base" else (0, 1, 2, 3, 4)):
                run = {"seed": seed, "mode": mode, "method": method, "beta": beta, "step": step}
                row = run | dict(zip(oracle.METRICS, rng.random(len(oracle.METRICS)), strict=True))
                row["prior_correct"] = {"base": 0.9, "none": 0.4}.get(method, 0.65) + 0.2 * rng.random()
                row["new_correct"] = {"base": 0.1, "none": 0.8}.get(method, 0.73) + 0.2 * rng.random()
                row["conditional_kl"] = 0.0 if mode == "exact" else row["conditional_kl"]
                row |= {"role": "report" if seed < 1000 else "selection", "kl_prompts": 4 if beta else 0}
                lines.append(row)
    table = pd.DataFrame(lines)
    equal = scores.at_equal_adaptation(scores.scored(lines), ("retention",))
    assert {line["method"] for line in equal} == {"cokl", "reverse_kl", "entropy"}
    written, tables = report.tables_of(table), oracle.final_tables(lines)
    for name, rows in tables.items():
        assert_same(written[name], pd.DataFrame(rows))


@pytest.mark.parametrize(
    ("half_width", "seeds", "verdict"), [(0.03, 5, "held"), (0.05, 5, "undecided"), (0.03, 3, None)]
)
def test_the_primary_comparison_is_of_accuracy_in_samples_with_replay(half_width, seeds, verdict):
    rows = [("sampled", "correct_forward_kl", 0.04), ("exact", "correct_forward_kl", -1.0), ("sampled", "cokl", -1.0)]
    leads = pd.DataFrame(rows, columns=["mode", "method", "prior_correct"])
    compared = report.primary(leads.assign(prior_correct_half_width=half_width, retention=-1.0), seeds)
    assert (compared.verdict, compared.measured) == (verdict, f"by 4.0 ± {100 * half_width:.1f} points")
