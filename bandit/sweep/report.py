"""The verdicts and the matched table of a sweep, as Markdown and for a terminal."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pandas as pd

from bandit.engine.tables import coverage_column, coverage_label, method_label
from bandit.sweep.claims import judge, lead
from bandit.sweep.score import MATCHED_CORRECTNESS, diverged_note, final_rows, matched_rows, matched_table
from cokl.support import verdicts
from cokl.support.statistics import markdown_table
from cokl.support.verdicts import answered


def page(table: pd.DataFrame) -> str:
    """The verdicts and the matched table as a Markdown page; below four seeds, what was measured alone."""
    refused = verdicts.no_verdict(table["seed"].nunique())
    rows = [{"claim": claim.statement, "measured": claim.measured, "verdict": claim.verdict} for claim in judge(table)]
    judged = pd.DataFrame(rows, columns=["claim", "measured", "verdict"]).drop(columns=["verdict"] if refused else [])
    return (
        f"# Controlled multi-solution experiment\n\n{_legend(table)}\n\n## Claims of the paper\n\n"
        + (f"{refused}\n\n" if refused else "")
        + f"{markdown_table(judged)}\n## {_MATCHED_TITLE}\n\n{markdown_table(matched_table(table))}"
    )


def screen(table: pd.DataFrame) -> str:
    """The same for a terminal: a paragraph per claim, then the matched table."""
    refused = verdicts.no_verdict(table["seed"].nunique())
    claims = verdicts.withheld(judge(table), table["seed"].nunique())
    held = sum(claim.verdict == "held" for claim in claims)
    lines = [f"\nClaims of the paper: {refused or f'{held} of {len(claims)} held in this environment'}"]
    if len(claims) < 2:
        lines.append("(the others compare CoKL with another regularizer: sweep both)")
    lines.append(verdicts.screen(claims, width=80))
    shown = matched_table(table, digits=3)
    shown.columns = [name.replace("_correct", "+") if name.startswith("cov") else name for name in shown.columns]
    return "\n".join([*lines, "", _MATCHED_TITLE, shown.to_string(index=False), textwrap.fill(_legend(table), 80)])


def at_the_match(table: pd.DataFrame, folder: Path) -> str:
    """What a finished sweep says on a terminal: CoKL's lead in coverage, and a line per method."""
    coverage = coverage_column(table)
    columns = {
        "p_correct": "correctness",
        coverage: coverage_label(coverage).lower(),
        "conditional_kl": "conditional KL",
    }
    shown = matched_table(table, digits=3)[["method", "beta", *columns]].rename(columns=columns)
    return answered(
        lead(table),
        table["seed"].nunique(),
        [f"{_MATCHED_TITLE}. {_runs(table)}", _far_from_the_match(table)],
        shown,
        folder / "figures" / "figure2_tradeoff.png",
        folder / "sweep.parquet",
        f"cokl bandit verdicts --results {folder}  (a verdict on each claim)",
    )


def _far_from_the_match(table: pd.DataFrame) -> str:
    """Which methods no coefficient brings near the match; "" if there is none."""
    reached = final_rows(matched_rows(table)).groupby("method", sort=False)["p_correct"].mean()
    far = reached[(reached - MATCHED_CORRECTNESS).abs() > FAR].index
    names = ", ".join(method_label(str(method)) for method in far)
    return f"Not comparable, since more than {FAR:g} away from {MATCHED_CORRECTNESS}: {names}." if names else ""


FAR = 0.03
"""How far a correctness may be from the match to be compared."""
_MATCHED_TITLE = f"Final metrics at the coefficient whose correctness is closest to {MATCHED_CORRECTNESS}"


def _legend(table: pd.DataFrame) -> str:
    return f"{_runs(table)} After a difference, ± is the half-width of its 95% t-interval."


def _runs(table: pd.DataFrame) -> str:
    counts = f"Seeds: {table['seed'].nunique()}; steps: {final_rows(table)['step'].max()}."
    note = diverged_note(table)
    return f"{counts} After a metric, ± is the standard deviation over seeds." + (f" {note}." if note else "")
