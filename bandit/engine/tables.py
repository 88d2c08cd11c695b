"""How the columns and methods of the tables that runs make are called, and how many seeds they report."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pandas as pd

from cokl import methods

method_label = partial(methods.label, own={"none": "No regularizer", "reference": "Reference"})
"""How a method of the sweep's table is called in figures and tables."""


def in_order(table: pd.DataFrame, methods: Iterable[str], by: list[str]) -> pd.DataFrame:
    """The rows sorted by the columns `by`, and by method as in `methods`."""
    places = {method: place for place, method in enumerate(methods)}
    keys = table.assign(method=table["method"].map(places))
    return table.loc[keys.sort_values(by).index].reset_index(drop=True)


def coverage_column(table: pd.DataFrame) -> str:
    """The name of the coverage column under pi, such as "coverage_at_64"."""
    return next(name for name in table.columns if name.startswith("coverage_at_") and not name.endswith("_correct"))


def coverage_label(column: str) -> str:
    """How pictures call that column: "Coverage@64"."""
    return f"Coverage@{column.rsplit('_', 1)[1]}"


def reported_seeds(table: pd.DataFrame) -> int:
    """How many seeds a table with selection seeds reports."""
    return int(table.loc[table["role"] == "report", "seed"].nunique())
