"""The open questions: what a language model answers before training, and where each run of one seed ends."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cokl_cli.report.html import chart, text
from llm_bridge.open_questions import analysis, figures


def body(folder: Path) -> str:
    """The answer, and correctness against different right answers and drift, of the first seed's runs."""
    shown = chart(figures.tradeoff(_of_one_seed(analysis.read(folder))), "open_questions_tradeoff")
    return f"<p>{text(answer(folder))}</p>{shown}"


def answer(folder: Path) -> str:
    """How often the model is right and in how many ways, before training and at the end of each run of one seed."""
    rows = analysis.read(folder)
    seeds, paths = rows["seed"].unique(), _of_one_seed(rows)
    before = paths[paths["step"] == 0].iloc[0]
    ends = paths.groupby(["method", "beta"], sort=False).tail(1)
    told = (f"{_called(row)} ends at {_both(row)}" for _, row in ends.iterrows() if row["step"])
    seed = f"seed {seeds[0]}" + (f", the first of {len(seeds)}" if len(seeds) > 1 else "")
    return (
        f"Before training {_both(before)}. {'; '.join(told)}. Different right answers are of 64 replies to a question. "
        f"One run each, of {seed}, which decides nothing."
    )


def _called(row: pd.Series) -> str:
    return figures.run_label(row["method"]) + (f" at {row['beta']:g}" if row["beta"] else "")


def _both(row: pd.Series) -> str:
    return f"{100 * row['right']:.0f} % right with {row['different']:.1f} different right answers"


def _of_one_seed(rows: pd.DataFrame) -> pd.DataFrame:
    return analysis.means(rows[rows["seed"] == rows["seed"].iloc[0]])
