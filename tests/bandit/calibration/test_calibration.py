"""The search for the paper's pattern: its judgements on tables made here, and a miniature from training to page."""

import itertools
import math

import pandas as pd
import pytest

from bandit.calibration import config as settings
from bandit.calibration.config import CalibrationConfig, method_name
from bandit.calibration.report import answer, judge, page, rows
from bandit.calibration.score import summarize
from bandit.sequences.config import SequenceConfig
from bandit.shift.config import ShiftConfig
from cokl import methods
from cokl.support.errors import InputError
from cokl_cli.commands.bandit import command_of
from tests.bandit.shift.conftest import TINY_SHIFT

CELL = "even-apart"
CONFIG = CalibrationConfig(cells=(CELL,), shares=(0.1, 1.0), betas=(0.1, 1.0, 10.0))
FRONTIER = {0.1: (40.0, 98.0), 1.0: (70.0, 92.0), 10.0: (90.0, 80.0)}
"""Replay's retention and adaptation."""


def table(gain: float, lost_by_cokl: float, without: dict[float, float], forgotten: float = 0.6) -> pd.DataFrame:
    """Ends of all runs: a tenth of term 2 gains retention at every coefficient, all of it loses some.

    without: retention of CoKL w/o term 1 by coefficient. Seeds differ by a hundredth of a point.
    """
    scores = {("base", 0.0): (100.0, 0.0), ("none", 0.0): (0.0, 100.0)}
    for beta, (retention, adaptation) in FRONTIER.items():
        scores["correct_forward_kl", beta] = retention, adaptation
        scores[method_name(0.1), beta] = retention + gain, adaptation
        scores["cokl", beta] = retention - lost_by_cokl, adaptation
    scores |= {("cokl_without_term1", beta): (retention, 100.0) for beta, retention in without.items()}
    seeds = {**dict.fromkeys(range(5), "report"), **dict.fromkeys((1000, 1001), "selection")}
    return pd.DataFrame(
        [
            {
                "cell": CELL, "seed": seed, "role": role, "mode": "sampled", "method": method, "beta": beta,
                "kl_prompts": 0, "step": 0 if method == "base" else 300,
                "prior_correct": 0.2 + forgotten * (retention + 0.01 * (seed % 5) * (beta > 0)) / 100,
                "new_correct": 0.2 + 0.6 * adaptation / 100,
                "prior_pass_at_k": retention / 200, "conditional_kl": 1 - retention / 100,
                **dict.fromkeys(("mass_drift", "correct_drift", "incorrect_drift", "zero_correct_rate"), 0.1),
            }
            for seed, role in seeds.items()
            for (method, beta), (retention, adaptation) in scores.items()
        ]
    )  # fmt: skip


def judged(*arguments, **options) -> pd.DataFrame:
    return summarize(table(*arguments, **options), CONFIG).set_index("share")


def test_measurements_are_those_of_the_table():
    found = judged(3, 30, {0.1: 4, 1.0: -20})
    assert found["lost"].tolist() == pytest.approx([75, 75])
    assert found["base_correct"].tolist() == pytest.approx([0.8, 0.8])
    assert found["without_term1"].tolist() == pytest.approx([4, -20], abs=0.03)
    assert found["kept"].tolist() == pytest.approx([3, -30])
    assert found["adapted"].tolist() == pytest.approx([0, 0])
    assert found["gain"].tolist() == pytest.approx([3, -30])
    assert found["pass_gain"].tolist() == pytest.approx([0.015, -0.15])
    assert found["kl_gain"].tolist() == pytest.approx([-0.03, 0.3])
    assert found["better"].tolist() == ["held", "not held"]


def test_each_measurement_is_under_its_head():
    row = rows(judged(3, 30, {0.1: 4.0, 1.0: -20}).reset_index().assign(kept=2.5, adapted=1.5)).iloc[0].to_dict()
    assert {name: cell.split(" ± ")[0] for name, cell in row.items()} == {
        "setting": CELL, "base correctness": "0.80", "GRPO loses, %": "75", "share of term 2": "0.1",
        "w/o term 1: retention": "4.0", "CoKL - replay at beta 1: retention": "2.5", "adaptation": "1.5",
        "at equal adaptation: retention": "3.0", "pass@k": "0.015", "conditional KL": "-0.030", "pattern": "yes",
        "keeps more": "held",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("gain", "without", "grpo", "replay"),
    [
        (4.9, 9.9, True, True),
        (-4.9, -9.9, True, True),
        (5.1, 10.1, False, False),
        (-5.1, -10.1, False, False),
        (3.0, 12.0, False, True),
    ],
)
def test_both_sides_of_every_tolerance(gain, without, grpo, replay):
    one = judged(gain, 30, {0.1: without, 1.0: -20}).loc[0.1]
    assert (one["near_grpo"], one["near_replay"]) == (grpo, replay)


def test_an_interval_across_a_tolerance_is_neither():
    rows = table(4.9, 30, {0.1: 4, 1.0: -20})
    moved = (rows["method"] == method_name(0.1)) & (rows["seed"] == 0)
    rows.loc[moved, "prior_correct"] += 0.05
    assert summarize(rows, CONFIG).set_index("share")["near_replay"][0.1] is None


def test_the_answer_counts_settings_and_names_the_largest_gain():
    found = judged(3, 30, {0.1: 4, 1.0: -20}).reset_index()
    pattern, worth = judge(found)
    assert (pattern.verdict, worth.verdict) == ("not held", "held")
    assert pattern.measured.startswith("in 0 of 1 settings where GRPO is seen to forget, 0 undecided")
    assert pattern.measured.endswith("with a part of term 2 in 1 of 1 rows, at shares of 0.1")
    assert worth.measured.startswith("more in 1 of 2 settings and shares, less in 1")
    assert worth.measured.endswith("the most 3.0 ± 0.0 points (even-apart, share 0.1)")
    assert worth.measured in answer(found, 5)
    assert "No verdicts" in answer(found, 3)
    assert "| yes " in page(found, 5)


def test_a_claim_is_held_by_one_setting_and_lost_by_all():
    pattern, worth = judge(judged(-3, 2, {0.1: 40, 1.0: 3}).reset_index())
    assert (pattern.verdict, worth.verdict) == ("held", "not held")
    found = judged(0, 2, {0.1: 40, 1.0: 9.98}).reset_index()
    pattern, worth = judge(found)
    assert found["better"].tolist() == ["undecided", "not held"]
    assert (pattern.verdict, worth.verdict) == ("undecided", "undecided")


def test_no_shares_are_named_where_none_shows_the_pattern():
    pattern, _ = judge(judged(30, 30, {0.1: 40, 1.0: -20}).reset_index())
    assert pattern.measured.endswith("with a part of term 2 in 0 of 1 rows")


def test_where_next_to_nothing_is_forgotten_nothing_is_said():
    found = judged(3, 30, {0.1: 4, 1.0: -20}, forgotten=0.03)
    assert found["gain"].isna().all()
    assert [claim.verdict for claim in judge(found.reset_index())] == ["undecided", "undecided"]


def test_a_share_is_that_part_of_the_second_term():
    assert [method_name(share) for share in (0, 1)] == ["correct_forward_kl", "cokl"]
    forms = []
    for share in (0.3, 1, 0):
        regularizer = methods.get(method_name(share)).regularizer
        assert regularizer is not None
        forms.append(regularizer.log_linear())
    part, whole, none = forms
    assert part is not None
    assert whole is not None
    assert none is not None
    assert part.log_mass == pytest.approx(0.3 * whole.log_mass + 0.7 * none.log_mass)
    assert (part.policy, part.measure) == (whole.policy, whole.measure)


def test_each_setting_changes_only_what_it_says():
    whole = CalibrationConfig()
    base = whole.experiment("even-apart")
    for cell, changes in settings.CELLS.items():
        other = whole.experiment(cell)
        differing = {name for name in ShiftConfig.__dataclass_fields__ if getattr(base, name) != getattr(other, name)}
        assert differing == set(changes)
    assert set(base.betas) == {0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0}


def test_the_settings_of_the_sequence_lab_are_lengths_and_token_means_of_it():
    whole = CalibrationConfig(cells=tuple(settings.SEQUENCE_CELLS))
    found: dict[str, SequenceConfig] = {}
    for cell in whole.cells:
        experiment = whole.experiment(cell)
        assert isinstance(experiment, SequenceConfig)
        found[cell] = experiment
    assert {(experiment.length, experiment.token_reduction) for experiment in found.values()} == {
        (1, "sum"), *itertools.product((3, 6, 12, 24), ("sum", "mean"))
    }  # fmt: skip
    base = found["tokens-12"]
    for cell, other in found.items():
        differing = {
            name for name in SequenceConfig.__dataclass_fields__ if getattr(base, name) != getattr(other, name)
        }
        assert differing <= {"length", "token_reduction"}, cell
    assert base.mode == "sampled"
    assert set(base.methods) == set(CalibrationConfig().experiment(CELL).methods)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cells": ("moon",)}, "cells: expected some of"),
        ({"cells": ("tokens-3", CELL)}, f"cells: expected some of .*, got {CELL}"),
        ({"cells": (CELL, "tokens-3")}, "cells: expected some of .*, got tokens-3"),
        ({"cells": ()}, "cells: expected at least one value"),
        ({"shares": (1.5,)}, "shares: expected numbers in"),
        ({"betas": (0.1,)}, "betas: expected 1 among them"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(InputError, match=message):
        CalibrationConfig(**options)


TINY_SIZES = (
    "batch_size",
    "buffer_size",
    "hidden",
    "pretrain_steps",
    "pretrain_batch_size",
    "prior_steps",
    "environment",
)
TINY_SEQUENCES = {
    "length": 3, "symbols": 4, "forbidden": 2, "clusters": 3, "input_dim": 4, "train_inputs": 20, "test_inputs": 6,
    "batch_size": 4, "buffer_size": 12, "kl_groups": 4, "hidden": (8,), "pretrain_steps": 20, "pretrain_batch_size": 8,
    "prior_steps": 2,
}  # fmt: skip


@pytest.mark.parametrize("cell", [CELL, "tokens-3"])
def test_a_miniature_is_trained_resumed_written_and_made_again(cell, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(settings.CELLS, CELL, {name: getattr(TINY_SHIFT, name) for name in TINY_SIZES})
    monkeypatch.setitem(settings.SEQUENCE_CELLS, "tokens-3", TINY_SEQUENCES)
    config = CalibrationConfig(cells=(cell,), shares=(0.1, 1.0), betas=(0.3, 1.0), seeds=2, selection_seeds=1, steps=3)
    folder = tmp_path / "result"
    command = command_of("calibration")(config=config, out=folder, jobs=1, csv=True)
    assert command.run() == 0
    rows = pd.read_parquet(folder / "calibration.parquet")
    counts = rows[rows["seed"] == 0].groupby("method").size().to_dict()
    trained = {"correct_forward_kl": 2, method_name(0.1): 2, "cokl": 2, "cokl_without_term1": 3}
    assert counts == trained | {"base": 1, "none": 1}
    assert set(rows["mode"]) == {"sampled"}
    pieces = {path: path.stat().st_mtime_ns for path in folder.rglob("runs/*.parquet")}
    assert pieces
    assert command.run() == 0
    assert pieces == {path: path.stat().st_mtime_ns for path in pieces}
    assert "2 reported seeds are too few" in capsys.readouterr().out
    found = command.outcome()
    assert len(found["settings"]) == 2
    assert len(pd.read_csv(folder / "calibration.csv")) == len(rows)
    assert found["page"].is_file()
    assert math.isfinite(found["settings"][0]["base_correct"])


@pytest.mark.parametrize("cell", ["even-apart", "tokens-6-mean"])
def test_a_second_search_draws_other_seeds_and_chooses_on_the_same(cell):
    config = CalibrationConfig(cells=(cell,), seeds=2, first_seed=10, selection_seeds=1)
    assert config.experiment(cell).roles == {10: "report", 11: "report", 1000: "selection"}
