"""The committed page's intervals follow from the committed seeds, by matching and differences written here."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from tests.oracles.scores import written

LAB = Path("bandit/robustness")
SEEDS = pd.read_csv(LAB / "RESULTS.csv")
PAGE = (LAB / "RESULTS.md").read_text(encoding="utf-8")


def measured(heading: str) -> dict[str, str]:
    """What the section of a claim has measured, by alternative."""
    section = next(part for part in PAGE.split("\n## ") if part.startswith(heading))
    lines = (line.strip("| ").split("|") for line in section.splitlines() if line.count("|") == 4)
    return {cells[0].strip(): cells[2].strip() for cells in lines}


def at_the_match(alternative: str, column: str) -> pd.DataFrame:
    """Seeds by methods, each at the coefficient whose mean correctness is closest to 0.96."""
    rows = SEEDS[(SEEDS["alternative"] == alternative) & (SEEDS["method"] != "none")]
    distance = (rows.groupby(["method", "beta"])["p_correct"].mean() - 0.96).abs()
    matched = pd.MultiIndex.from_tuples(distance.groupby("method").idxmin())
    values = rows.set_index(["method", "beta", "seed"])[column].unstack()
    return values.loc[matched].droplevel(1).T


@pytest.mark.parametrize("alternative", SEEDS["alternative"].unique())
@pytest.mark.parametrize(
    ("heading", "column", "sign", "word"),
    [
        ("At matched correctness, CoKL's coverage@64 is higher", "coverage", 1, "higher"),
        ("At matched correctness, CoKL's conditional KL is lower", "conditional_kl", -1, "lower"),
    ],
)
def test_cokls_lead_over_the_next_best_is_of_the_committed_seeds(heading, column, sign, word, alternative):
    values = at_the_match(alternative, column)
    leads = sign * values.drop(columns="cokl").rsub(values["cokl"], axis=0)
    smallest = leads[leads.mean().idxmin()]
    assert len(smallest) == 5
    lead = f"{word} by {written(smallest.tolist(), 3)}, in {(smallest > 0).sum()} of 5"
    assert lead in measured(heading)[alternative]


@pytest.mark.parametrize("alternative", SEEDS["alternative"].unique())
def test_the_collapse_is_of_the_committed_seeds(alternative):
    rows = SEEDS[(SEEDS["alternative"] == alternative) & (SEEDS["method"] == "none")]
    correct, covered = (written(rows[column].tolist(), 4) for column in ("p_correct", "coverage"))
    shown = measured("Unregularized RL becomes correct")[alternative]
    assert shown == f"correctness {correct}, coverage {covered} (95% intervals)"


def test_every_alternative_of_the_page_has_seeds():
    on_page = re.findall(r"^\| ([a-z_]+-\S+|base) +\|", PAGE, re.MULTILINE)
    assert set(on_page) == set(SEEDS["alternative"])
