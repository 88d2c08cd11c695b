"""Robustness on the page: of each claim in how many alternatives its verdict stands, and what was measured in each."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bandit.robustness.report import standing
from bandit.robustness.run import BASE
from figures.page import Section, table, text


def section(folder: Path) -> Section:
    """A block per claim."""
    compared = pd.read_csv(folder / "robustness.csv", dtype={"stands": "boolean"}).fillna({"verdict": ""})
    blocks = "".join(
        f"<details><summary>{text(claim)}. {text(standing(rows))}</summary>"
        f"{table(rows[['alternative', 'verdict', 'measured']])}</details>"
        for claim, rows in compared.groupby("claim", sort=False)
    )
    others = compared.loc[compared["alternative"] != BASE, "alternative"].nunique()
    body = (
        f"<p>Each of {others} alternatives changes one assumption of the controlled experiment, or counts other draws "
        f"than 64.</p>{blocks}"
    )
    return Section("robustness", "What the verdicts rest on", body, folder.name)
