"""Replay, which the paper's figure does not have: shown with a sweep's methods, and judged by no claim of theirs."""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
from pathlib import Path

import pandas as pd
import pytest

from bandit.labs import LABS
from bandit.sweep.analysis import analyse
from bandit.sweep.config import SweepConfig
from bandit.sweep.figures import draw
from cokl.support.errors import InputError
from cokl_cli.report.results import finished
from tests.bandit.sweep.tables import GOOD, sweep_table

BETTER = {"correct_forward_kl": {0.001: (0.99, 0.10, 5.0), 0.1: (0.958, 0.90, 0.1)}}
"""Than CoKL, so that every claim of its lead would fall."""


@pytest.fixture
def swept() -> dict[str, pd.DataFrame]:
    return {"sweep": sweep_table(GOOD), "replay/sweep": sweep_table(BETTER)}


def test_claims_and_answer_are_those_of_the_sweep_alone(swept):
    both, alone = (analyse(tables, SweepConfig()) for tables in (swept, {"sweep": swept["sweep"]}))
    assert both.claims == alone.claims
    assert both.answer == alone.answer


def test_figures_and_table_have_it(swept):
    analysis = analyse(swept, SweepConfig())
    row = analysis.tables["matched"].set_index("method").loc["Replay"]
    rows = swept["replay/sweep"].query("beta == 0.1 and step == 200")
    assert row["beta"] == "0.1"
    assert row["p_correct"].startswith(f"{statistics.fmean(rows['p_correct']):.3f}")
    assert row["coverage_at_64"].startswith(f"{statistics.fmean(rows['coverage_at_64']):.3f}")
    assert "Replay" in set(analysis.screen["method"])
    for drawing in draw(analysis).values():
        assert "correct_forward_kl" in set(drawing.marks["method"])


def test_rows_away_from_the_match_have_a_star_where_people_read_them():
    """Of those that end at 0.964, 0.98, 0.965 and 0.955, the second; the CSV has numbers alone."""
    analysis = analyse({"sweep": sweep_table(GOOD)}, SweepConfig())
    shown = analysis.readable(analysis.tables["matched"]).set_index("method")["beta"].to_dict()
    assert shown == {"Entropy": "0.001", "No regularizer": "0*", "Forward KL": "0.001", "CoKL": "0.1"}
    assert dict(zip(analysis.screen["method"], analysis.screen["beta"], strict=True)) == shown
    assert not analysis.tables["matched"]["beta"].str.contains("*", regex=False).any()
    assert any("*: more than 0.01 away from 0.96" in note for note in analysis.notes)


def saved(swept: dict[str, pd.DataFrame], folder: Path, within: SweepConfig) -> None:
    """A sweep of the paper's settings, and one within it of other settings."""
    for path, name, config in ((folder, "sweep", SweepConfig()), (folder / "replay", "replay/sweep", within)):
        path.mkdir(exist_ok=True)
        swept[name].to_parquet(path / "sweep.parquet")
        (path / "config.json").write_text(json.dumps(config.as_dict()))


def test_it_is_read_from_within_a_sweeps_folder_and_is_no_sweep_of_its_own(swept, tmp_path: Path):
    saved(swept, tmp_path, SweepConfig(methods=("correct_forward_kl",)))
    tables, _ = LABS["sweep"].read(tmp_path)
    assert set(tables) == {"sweep", "replay/sweep"}
    pd.testing.assert_frame_equal(tables["replay/sweep"], swept["replay/sweep"])
    assert finished(tmp_path) == {"sweep": [tmp_path]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 300, "seeds": 3}, "(seeds: 3 there, 5 asked for; steps: 300 there, 1000 asked for)"),
        (
            {"environment": dataclasses.replace(SweepConfig().environment, noise=1.0)},
            "(environment.noise: 1.0 there, 1.4 asked for)",
        ),
    ],
)
def test_one_of_other_settings_is_refused_since_a_table_of_both_would_compare_unlike_runs(
    changes, said, swept, tmp_path: Path
):
    saved(swept, tmp_path, SweepConfig(methods=("correct_forward_kl",), **changes))
    with pytest.raises(InputError, match=re.escape(f"{said}; move or remove {tmp_path / 'replay'}")) as refused:
        LABS["sweep"].read(tmp_path)
    assert "\n" not in str(refused.value)
