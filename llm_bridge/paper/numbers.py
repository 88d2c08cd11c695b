"""The numbers of the paper's LLM tables, as printed."""

from __future__ import annotations

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
_NUMBERS = {
    "raw": SCORES,
    "normalized": SCORES,
    "ablation": AGGREGATES,
    "floor": AGGREGATES,
    "zero_correct": ("zero_correct", "at_least_one"),
    "cost": ("first_step_seconds", "mean_length"),
}
"""The tables' columns beside model and method."""


def read_paper(folder: Path = PAPER) -> dict[str, pd.DataFrame]:
    """Each table as printed, a row per (model, method). Raises InputError for a missing or defective file."""
    key = ("model", "method")
    return {name: read_csv(folder / f"{name}.csv", key, columns, key) for name, columns in _NUMBERS.items()}


def paper_tables(paper: dict[str, pd.DataFrame]) -> list[Table]:
    """The paper's tables through the code that renders ours; the normalized one is computed from the raw one."""
    tables = {**paper, "normalized": normalize(paper["raw"], MATH)}
    return [result_table(name, tables[name]) for name in _NUMBERS]
