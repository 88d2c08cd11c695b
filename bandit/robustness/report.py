"""Which verdicts stand under which alternative, with what was measured."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from bandit.robustness.config import RobustnessConfig
from bandit.robustness.run import BASE
from bandit.sweep.claims import coverage_leads, judge
from cokl.support.files import write_text
from cokl.support.statistics import csv_text, markdown_table, mean_and_half_width, with_spread
from cokl.support.verdicts import Claim, Verdict, answered, no_verdict


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
    return on_screen(compared, smallest_leads(tables), seeds, folder)


def smallest_leads(tables: Mapping[str, pd.DataFrame]) -> list[pd.Series]:
    """In each table CoKL's lead in coverage over the next best, by seed."""
    return [next(iter(leads.values())) for leads in map(coverage_leads, tables.values()) if leads]


def page(compared: pd.DataFrame, seeds: int) -> str:
    """The comparison as a page: a section per claim."""
    parts = ["# Robustness of the controlled experiment", _legend(seeds)]
    for claim, rows in compared.groupby("claim", sort=False):
        shown = rows[["alternative", "verdict", "measured"]]
        parts += [f"## {claim}", standing(rows), markdown_table(shown if rows["verdict"].any() else shown[_BARE])]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def on_screen(compared: pd.DataFrame, leads: Sequence[pd.Series], seeds: int, folder: Path) -> str:
    """For a terminal, how many verdicts stand, and for each claim in how many alternatives it does.

    leads: CoKL's in coverage, by seed, in the base and in each alternative.
    """
    others = _under_assumptions(compared)
    stand, judged = int(others["stands"].sum()), int(others["stands"].notna().sum())
    ends = [with_spread(*pair, 3) for pair in sorted(map(mean_and_half_width, leads))[:: max(1, len(leads) - 1)]]
    answer = Claim(
        "The verdicts stand",
        "",
        f"{stand} of {judged} do; CoKL covers {' to '.join(ends)} more" if ends else f"{stand} of {judged} do",
        "held" if stand == judged else "depends",
    )
    lines = []
    for claim, rows in compared.groupby("claim", sort=False):
        row = {"claim": textwrap.shorten(str(claim), 52, placeholder=" ..."), "base": "", "stands": "", "not with": ""}
        if rows["verdict"].any():
            assumed = _under_assumptions(rows)
            away = assumed[~assumed["stands"].fillna(True)]["alternative"]
            row["base"] = rows.loc[rows["alternative"] == BASE, "verdict"].iloc[0]
            row["stands"] = f"{len(assumed) - len(away)} of {len(assumed)}"
            row["not with"] = ", ".join(away.iloc[:1]) + (f" and {len(away) - 1} more" if len(away) > 1 else "")
        lines.append(row)
    return answered(
        answer,
        seeds,
        [_legend(seeds)],
        pd.DataFrame(lines),
        None,
        folder / "results.md",
    )


_BARE = ["alternative", "measured"]


def standing(rows: pd.DataFrame) -> str:
    """In how many alternatives a claim's verdict stands, and where it does not; "" without verdicts.

    Another number of draws than the sweep's is another measurement and counts apart.
    """
    if rows["stands"].isna().any():
        return ""
    verdict = rows.loc[rows["alternative"] == BASE, "verdict"].iloc[0]
    assumed = _under_assumptions(rows)
    parts = [f"the base's verdict, {verdict}, stands in {assumed['stands'].sum()} of {len(assumed)} alternatives"]
    for row in rows[~rows["stands"]].itertuples():
        remark = ", which is another measurement" if _is_no_assumption(str(row.alternative)) else ""
        parts.append(f"{row.verdict} with {row.alternative}{remark}")
    return "; ".join(parts)


def verdict_of(rows: pd.DataFrame) -> Verdict | None:
    """Whether a claim's verdict stands under every assumption; None below four seeds."""
    assumed = _under_assumptions(rows)
    return None if rows["stands"].isna().any() else "held" if assumed["stands"].all() else "not held"


def _under_assumptions(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the alternatives that change an assumption."""
    return rows[~rows["alternative"].map(_is_no_assumption)]


def _is_no_assumption(alternative: str) -> bool:
    """Whether it is the base, or counts other draws than the paper's 64: a different measurement of the same runs."""
    return alternative == BASE or alternative.startswith("coverage_draws-")


def _legend(seeds: int) -> str:
    return (
        f"Seeds: {seeds}. Each alternative changes one assumption of the sweep and trains every method at the "
        "coefficients next to the sweep's own match; the base is judged on the same coefficients. Other numbers of "
        "draws than 64 measure something else, and count apart."
        + (f" {refused}" if (refused := no_verdict(seeds)) else "")
    )
