"""How every figure looks: sizes, fonts, and one colour, marker and line per method, everywhere the same.

Colours are Okabe and Ito's colour-blind safe palette; markers and dashes tell the methods apart in grey print too.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cokl.support.files import write_atomically

TEXT_WIDTH = 7.0
"""Width of a two-column page's text, inches."""

RC: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.6,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "svg.hashsalt": "cokl",
}


@dataclass(frozen=True)
class Style:
    """How a line, its markers or an area look.

    dashes: lengths of strokes and gaps in line widths, none for a solid line. fill: a marker's inside where it is not
    of the line's colour. edge: a marker's outline likewise. width: of the line; 0
    leaves the markers alone. order: what is higher is drawn later.
    """

    color: str
    marker: str = ""
    dashes: tuple[float, ...] = ()
    width: float = 1.3
    size: float = 3.6
    fill: str = ""
    edge: str = ""
    edge_width: float = 1.0
    alpha: float = 1.0
    order: float = 3

    def line(self) -> dict[str, Any]:
        """Keyword arguments for Matplotlib's line with markers."""
        return {
            "color": self.color,
            "marker": self.marker,
            "dashes": self.dashes or (None, None),
            "linewidth": self.width,
            "markersize": self.size,
            "markerfacecolor": self.fill or self.color,
            "markeredgecolor": self.edge or self.color,
            "markeredgewidth": self.edge_width,
            "alpha": self.alpha,
            "zorder": self.order,
        }


METHOD_STYLES = {
    "reference": Style("#000000", "*"),
    "base": Style("#000000", "*"),
    "none": Style("#000000", "X"),
    "grpo": Style("#000000", "X"),
    "cokl": Style("#D55E00", "o"),
    "forward_kl": Style("#0072B2", "s", (5, 1.2)),
    "reverse_kl": Style("#56B4E9", "D", (5, 1.2, 1.2, 1.2)),
    "jensen_shannon": Style("#009E73", "^", (2.5, 1.2)),
    "entropy": Style("#E69F00", "v", (1.2, 1.2)),
    "correct_forward_kl": Style("#CC79A7", "P", (5, 1.2)),
    "correct_reverse_kl": Style("#7A4B94", "d", (5, 1.2, 1.2, 1.2)),
    "cokl_without_term1": Style("#8C564B", "<", (2.5, 1.2)),
    "cokl_floor": Style("#999933", "p", (5, 1.2)),
}

_SPARE_COLORS = ["#332288", "#117733", "#882255", "#DDCC77"]
_SPARE_MARKERS = "h8H4"


def method_style(method: str) -> Style:
    """A method's style; methods that are not in the table get one of the spare colours, fixed by their name."""
    if method in METHOD_STYLES:
        return METHOD_STYLES[method]
    position = sum(method.encode()) % len(_SPARE_COLORS)
    return Style(_SPARE_COLORS[position], _SPARE_MARKERS[position], (3, 1, 1, 1))


class Picture(Figure):
    """A figure with the words that stand under it; it is not pyplot's, which would keep every figure open."""

    caption: str = ""


def settings(others: Mapping[str, Any] | None = None) -> AbstractContextManager[None]:
    """RC and others on Matplotlib's own defaults, whatever a matplotlibrc, a notebook or its style has set."""
    return style.context(["default", {**RC, **(others or {})}])


def new_figure(width: float, height: float, **subplots) -> tuple[Picture, list[Axes]]:
    """A figure of the given size in inches, and its axes as a flat list. Draw inside `with settings():`."""
    figure = Picture(figsize=(width, height))
    return figure, list(figure.subplots(squeeze=False, **subplots).flat)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write `name`.pdf and `name`.png into `folder`, without timestamps; returns the paths."""
    paths = [folder / f"{name}.pdf", folder / f"{name}.png"]
    for path, metadata in zip(paths, ({"CreationDate": None}, {"Software": None}), strict=True):
        buffer = io.BytesIO()
        with settings():
            figure.savefig(buffer, format=path.suffix[1:], metadata=metadata)
        write_atomically(path, partial(Path.write_bytes, data=buffer.getvalue()))
    return paths


def save_all(figures: dict[str, Picture], folder: Path) -> str:
    """Save each figure under its name; returns a line that says where they are."""
    for name, figure in figures.items():
        save(figure, folder, name)
    return f"figures, as PDF and PNG: {folder}"


SEED_LINES = 4
"""With fewer seeds than this a figure draws each seed's line, since a band over so few says next to nothing."""
