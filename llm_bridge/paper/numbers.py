"""The numbers of the paper's LLM tables and the numbers that its text quotes, as printed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from llm_bridge.report.csv_tables import read_csv
from llm_bridge.report.normalize import normalize
from llm_bridge.report.result_tables import AGGREGATES, result_table
from llm_bridge.report.tables import Table

PAPER = Path(__file__).parent
MATH = ("math_val", "math500", "olympiad")
"""The columns of mathematics as printed, whatever else the toolkit comes to evaluate on."""
SCORES = (*MATH, *AGGREGATES)


@dataclass(frozen=True)
class Paper:
    """Tables as printed, a row per (model, method).

    marks: a row per bold ("best") or underlined ("second") cell of a table. quotes: a row per number in the text.
    """

    raw: pd.DataFrame
    normalized: pd.DataFrame
    ablation: pd.DataFrame
    floor: pd.DataFrame
    zero_correct: pd.DataFrame
    cost: pd.DataFrame
    marks: pd.DataFrame
    quotes: pd.DataFrame


def read_paper(folder: Path = PAPER) -> Paper:
    """The paper's numbers from the CSV files in `folder`. Raises InputError for a missing or defective file."""
    key = ("model", "method")
    numbers = {
        "raw": SCORES,
        "normalized": SCORES,
        "ablation": AGGREGATES,
        "floor": AGGREGATES,
        "zero_correct": ("zero_correct", "at_least_one"),
        "cost": ("first_step_seconds", "mean_length"),
    }
    tables = {name: read_csv(folder / f"{name}.csv", key, columns, key) for name, columns in numbers.items()}
    cell = ("table", *key, "column")
    marks = read_csv(folder / "marks.csv", (*cell, "mark"), (), cell)
    quotes = read_csv(folder / "quotes.csv", ("quote", "model"), ("value",), ("quote", "model"))
    return Paper(**tables, marks=marks, quotes=quotes)


def paper_tables(paper: Paper) -> list[Table]:
    """The paper's tables through the code that renders ours; the normalized one is computed from the raw one."""
    tables = {**vars(paper), "normalized": normalize(paper.raw, MATH)}
    names = ("raw", "normalized", "ablation", "floor", "zero_correct", "cost")
    return [result_table(name, tables[name]) for name in names]
