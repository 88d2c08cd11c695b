"""Robustness on the page: of each claim in how many alternatives its verdict stands, and what was measured in each."""

from __future__ import annotations

from pathlib import Path

from bandit.robustness.report import standing
from bandit.robustness.run import BASE
from cokl.support.files import read_result
from figures.page import Section, table, text


def section(folder: Path) -> Section:
    """A block per claim."""
    compared = read_result(folder / "robustness.parquet", ("claim", "alternative", "verdict", "stands", "measured"))
    blocks = "".join(
        f"<details><summary>{text(claim)}. {text(standing(rows))}</summary>"
        f"{table(rows[['alternative', 'verdict', 'measured']])}</details>"
        for claim, rows in compared.groupby("claim", sort=False)
    )
    others = compared.loc[compared["alternative"] != BASE, "alternative"].nunique()
    body = f"<p>Each of {others} alternatives changes one assumption of the controlled experiment.</p>{blocks}"
    return Section("robustness", "What the verdicts rest on", body, folder.name)
