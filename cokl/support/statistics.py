"""Means with their intervals, how they are written, and Markdown tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtrit


def with_spread(value: float, spread: float, digits: int) -> str:
    """ "value ± spread", or the value alone where a single seed leaves the spread unknown; never "-0.000".

    "-" where there is no value.
    """
    if math.isnan(value):
        return "-"
    return f"{value:z.{digits}f}" + (f" ± {spread:.{digits}f}" if math.isfinite(spread) else "")


def mean_and_half_width(values: pd.Series) -> tuple[float, float]:
    """Mean and half the width of its 95% t-interval; infinite for a single value."""
    if len(values) < 2:
        return float(values.mean()), float("inf")
    standard_error = np.std(values.to_numpy(), ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(standard_error * stdtrit(len(values) - 1, 0.975))  # Student's t at 97.5 %


def summarize(rows: pd.DataFrame, by: list[str], columns: list[str]) -> pd.DataFrame:
    """A row per group, in order of appearance: each column's mean over seeds, and COLUMN_half_width, 95% interval."""
    names = [*by, *(name for column in columns for name in (column, f"{column}_half_width"))]
    lines = []
    for key, group in rows.groupby(by, sort=False, dropna=False):
        line = dict(zip(by, key, strict=True))
        for column in columns:
            line[column], line[f"{column}_half_width"] = mean_and_half_width(group[column])
        lines.append(line)
    return pd.DataFrame(lines, columns=names)


def spread_column(frame: pd.DataFrame, name: str, digits: int = 1) -> list[str]:
    """A column of means with their NAME_half_width, as written; "" where there is no mean."""
    pairs = zip(frame[name], frame[f"{name}_half_width"], strict=True)
    return ["" if pd.isna(mean) else with_spread(mean, half_width, digits) for mean, half_width in pairs]


def plain_markdown_table(columns: Sequence[str], rows: Iterable[Iterable[object]], rule: Sequence[str] = ()) -> str:
    """A Markdown table without a newline at its end; bars in cells are escaped, and newlines become spaces.

    rule: what stands under each column's title, "---" if not given.
    """
    header, *body = [
        "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in row) + " |"
        for row in (columns, *rows)
    ]
    return "\n".join([header, f"|{'|'.join(rule or ['---'] * len(columns))}|", *body])


def markdown_table(frame: pd.DataFrame) -> str:
    """A Markdown table with padded columns."""
    rows = [list(frame.columns), *frame.astype(str).to_numpy().tolist()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    header, *body = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return plain_markdown_table(header, body, rule=["-" * (width + 2) for width in widths]) + "\n"


def csv_text(frame: pd.DataFrame) -> str:
    """Six significant digits; adding zero turns -0 into 0."""
    numbers = frame.select_dtypes("float")
    rounded = {str(name): numbers[name].round(9) + 0.0 for name in numbers}
    return frame.assign(**rounded).to_csv(index=False, float_format="%.6g")
