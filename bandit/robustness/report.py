"""Which verdicts stand under which alternative, with what was measured."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from bandit.robustness.config import RobustnessConfig
from bandit.robustness.run import BASE
from bandit.sweep.claims import judge
from cokl.support.files import write_text
from cokl.support.statistics import csv_text, markdown_table
from cokl.support.verdicts import no_verdict


def compare(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """A row per claim and table: claim, alternative, verdict, stands (as in the base), measured.

    tables: as `bandit.robustness.run.robustness` makes them; the base is judged on the same coefficients. Below four
    seeds verdicts are empty and nothing stands or falls.
    """
    base = judge(tables[BASE])
    lines = []
    for name, table in tables.items():
        refused = no_verdict(table["seed"].nunique())
        for claim, at_base in zip(judge(table), base, strict=True):
            verdict = "" if refused else claim.verdict
            stands = None if refused else verdict == at_base.verdict
            row = {"claim": at_base.statement, "alternative": name, "verdict": verdict, "stands": stands}
            lines.append({**row, "measured": claim.measured})
    return pd.DataFrame(lines).astype({"stands": "boolean"})


def write(tables: Mapping[str, pd.DataFrame], config: RobustnessConfig, folder: Path) -> str:
    """Write the comparison as FOLDER/robustness.csv and FOLDER/results.md; returns what stands, for a terminal."""
    compared, seeds = compare(tables), config.sweep.seeds
    write_text(csv_text(compared), folder / "robustness.csv")
    write_text(page(compared, seeds), folder / "results.md")
    return f"{screen(compared, seeds)}\n\nwritten to {folder / 'results.md'}"


def page(compared: pd.DataFrame, seeds: int) -> str:
    """The comparison as a page: a section per claim."""
    parts = ["# Robustness of the controlled experiment", _legend(seeds)]
    for claim, rows in compared.groupby("claim", sort=False):
        shown = rows[["alternative", "verdict", "measured"]]
        parts += [f"## {claim}", standing(rows), markdown_table(shown if rows["verdict"].any() else shown[_BARE])]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def screen(compared: pd.DataFrame, seeds: int) -> str:
    """A paragraph per claim: whether its verdict stands, and the figures of the base and of where it does not."""
    lines = [textwrap.fill(_legend(seeds), 80)]
    for claim, rows in compared.groupby("claim", sort=False):
        lines += ["", textwrap.fill(str(claim), 80), *filter(None, [standing(rows)])]
        shown = rows if rows["stands"].isna().all() else rows[(rows["alternative"] == BASE) | ~rows["stands"]]
        for row in shown.to_dict("records"):
            called = f"{row['alternative']}: " + (f"{row['verdict']}; " if row["verdict"] else "")
            lines.append(textwrap.fill(called + row["measured"], 80, initial_indent="  ", subsequent_indent="    "))
    return "\n".join(lines)


_BARE = ["alternative", "measured"]


def standing(rows: pd.DataFrame) -> str:
    """In how many alternatives a claim's verdict stands, and where it does not; "" without verdicts."""
    others = rows[rows["alternative"] != BASE]
    if others["stands"].isna().all():
        return ""
    verdict = rows.loc[rows["alternative"] == BASE, "verdict"].iloc[0]
    fallen = others[~others["stands"]]
    where = "; ".join(f"{row.verdict} with {row.alternative}" for row in fallen.itertuples())
    return f"{verdict}: stands in {len(others) - len(fallen)} of {len(others)} alternatives" + (
        f"; {where}" if where else ""
    )


def _legend(seeds: int) -> str:
    return (
        f"Seeds: {seeds}. Each alternative changes one assumption of the sweep and trains every method at the "
        "coefficients next to the sweep's own match; the base is judged on the same coefficients."
        + (f" {refused}" if (refused := no_verdict(seeds)) else "")
    )
