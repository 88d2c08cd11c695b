"""What a figure draws, as a table with a row for each mark; renderers draw it without knowing what was measured.

The columns of a table of marks:

- panel: the panel's name, a key of `Drawing.panels`;
- kind: "line" (its intervals are bars), "band" (a line whose intervals are an area), "seed" (a thin line of one run),
  "point" (a marker alone), "hline" (a horizontal line through the panel);
- label: what the legend calls it; method: the method that it belongs to, if any; style: how it looks, a key of
  `Drawing.styles` or a method, the mark's own method if empty; run: tells lines of one label apart;
- x, y; low, high: the interval of y; x_low, x_high: that of x;
- text: written above an "hline", otherwise said of the mark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from figures.style import Style, method_style

DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("panel", "kind", "label", "method", "style"), ""),
    "run": 0,
    **dict.fromkeys(("x", "y", "low", "high", "x_low", "x_high"), math.nan),
    "text": "",
}


@dataclass(frozen=True)
class Panel:
    """The axes of one panel.

    scale: of x, "linear", "log2", "log10" or "stretched" towards 1. x_ticks: where x is labelled.
    """

    title: str = ""
    x: str = ""
    y: str = ""
    scale: str = "linear"
    x_ticks: Sequence[float] = ()
    x_limits: tuple[float | None, float | None] = (None, None)
    y_limits: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True)
class Drawing:
    """A whole figure: its marks, its panels in order, and how they are arranged.

    legend: styles by label, where it is not made of the marks. shared: Matplotlib's sharex and sharey. note: what is
    said above the panels. letters: whether the panels are called (a), (b), ...
    """

    marks: pd.DataFrame
    panels: Mapping[str, Panel]
    columns: int
    height: float
    caption: str
    styles: Mapping[str, Style] = field(default_factory=dict)
    legend: Mapping[str, str] | None = None
    legend_columns: int = 4
    legend_title: str = ""
    shared: Mapping[str, Any] = field(default_factory=dict)
    letters: bool = False
    note: str = ""

    def style(self, name: str) -> Style:
        """The style of that name, or else the method's."""
        return self.styles.get(name) or method_style(name)

    def series(self, panel: str) -> Iterator[tuple[str, str, Style, str, pd.DataFrame]]:
        """Kind, label, style, method and rows of what belongs together in a panel, in the table's order."""
        rows = self.marks[self.marks["panel"] == panel]
        for (kind, label, method, style, _), part in rows.groupby(
            ["kind", "label", "method", "style", "run"], sort=False
        ):
            yield str(kind), str(label), self.style(str(style) or str(method)), str(method), part


def marks(panel: str, kind: str, **columns: Any) -> pd.DataFrame:
    """Marks of one kind in one panel; columns that are not given are empty."""
    values = {**DEFAULTS, "panel": panel, "kind": kind, **columns}
    length = max((len(value) for value in values.values() if np.ndim(value)), default=1)
    filled = {name: np.asarray(value) if np.ndim(value) else [value] * length for name, value in values.items()}
    return pd.DataFrame(filled, columns=list(values))


def join(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The parts as one table."""
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def interval(rows: pd.DataFrame, column: str, half_width: str = "_half_width", prefix: str = "") -> dict[str, Any]:
    """Columns low and high around a column; empty where a single seed leaves the interval unknown.

    half_width: the end of the name of the column with half the interval's width. prefix: "x_" for the interval of x.
    """
    half = rows[f"{column}{half_width}"].where(np.isfinite(rows[f"{column}{half_width}"]))
    return {f"{prefix}low": rows[column] - half, f"{prefix}high": rows[column] + half}


def stretch(correctness: np.ndarray) -> np.ndarray:
    """Where a correctness in [0, 1] lies on the axis that is stretched towards 1."""
    return -np.log(np.clip(1 - correctness, 1e-6, None))


def stretched_ticks(low: float, high: float) -> list[float]:
    """Round numbers within such an axis, close enough to label at least two."""
    chosen = [tick for tick in (0.1, 0.5, 0.7, 0.8, 0.9, 0.94, 0.96, 0.98, 0.99) if low <= tick <= high]
    return chosen if len(chosen) > 1 else [round(float(tick), 4) for tick in np.linspace(low, high, 4)]
