"""Draws a table of marks with Matplotlib, for print."""

from __future__ import annotations

import itertools
import textwrap

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from figures.marks import Drawing, Panel, stretch, stretched_ticks
from figures.style import TEXT_WIDTH, Picture, Style, new_figure, settings

RASTERIZED = 500
"""More points than this are pixels in a PDF."""


def series_name(number: int) -> str:
    """What the artists of a drawing's series are called in an SVG, counted over all panels."""
    return f"series-{number}"


def render(drawing: Drawing, legend: bool = True) -> Picture:
    """The figure, with its caption. legend: whether it is drawn."""
    numbers = itertools.count()
    count = len(drawing.panels)
    rows = -(-count // drawing.columns)
    with settings({"axes.axisbelow": True}):
        figure, axes = new_figure(TEXT_WIDTH, drawing.height, nrows=rows, ncols=drawing.columns, **drawing.shared)
        for unused in axes[count:]:
            unused.remove()
        for number, (panel, (name, its_axes)) in enumerate(zip(axes, drawing.panels.items(), strict=False)):
            for kind, label, style, _, part in drawing.series(name):
                before = set(panel.get_children())
                _draw(panel, kind, label, style, part)
                name_of_series = series_name(next(numbers))
                for artist in panel.get_children():
                    if artist not in before:
                        artist.set_gid(name_of_series)
            panel.set_title(its_axes.title, fontsize=7 if drawing.columns > 3 else None)
            _set_axes(panel, its_axes)
            if drawing.shared.get("sharey") is not True or number % drawing.columns == 0:
                panel.set_ylabel(its_axes.y)
            if not drawing.shared.get("sharex") or number + drawing.columns >= count:
                panel.set_xlabel(its_axes.x)
                panel.tick_params(labelbottom=True)
        small = any(style.size < 3 for style in drawing.styles.values())
        if drawing.letters:
            for letter, panel in zip("abcdefgh", axes[:count], strict=False):
                panel.set_title(f"({letter})", loc="left", fontweight="bold")
        if legend:
            figure.legend(
                handles=_legend(drawing, axes[:count]), loc="outside lower center", ncols=drawing.legend_columns,
                title=drawing.legend_title or None, markerscale=3 if small else 1,
            )  # fmt: skip
        if drawing.note:  # which runs diverged and are left out
            figure.suptitle("\n".join(textwrap.wrap(drawing.note, 130)), fontsize=6)
    figure.caption = drawing.caption
    return figure


def marker_every(kind: str, points: int) -> int:
    """Of a line's points, how many there are to a marker."""
    return -(-points // 8) if kind == "band" else 1


def _draw(axes: Axes, kind: str, label: str, style: Style, rows: pd.DataFrame) -> None:
    shown = label or "_"
    match kind:
        case "line" | "band" | "point":
            every = marker_every(kind, len(rows))
            look = style.line() | {"label": shown, "markevery": every, "rasterized": len(rows) > RASTERIZED}
            if kind == "point":
                look |= {"linestyle": "none", "dashes": None}
            axes.plot(rows["x"], rows["y"], **{name: value for name, value in look.items() if value is not None})
            (_band if kind == "band" else _bars)(axes, rows, style)
        case "seed":
            axes.plot(rows["x"], rows["y"], **(style.line() | {"linewidth": 0.6, "alpha": 0.7, "marker": ""}))
        case "hline":
            height = rows["y"].iloc[0]
            axes.axhline(
                height, color=style.color, linewidth=style.width, dashes=style.dashes or (None, None), zorder=1,
                label=shown,
            )  # fmt: skip
            axes.annotate(
                rows["text"].iloc[0], (1, height), xycoords=("axes fraction", "data"), xytext=(0, 2),
                textcoords="offset points", ha="right", fontsize=6,
            )  # fmt: skip


def _bars(axes: Axes, rows: pd.DataFrame, style: Style) -> None:
    """Bars of the intervals of x and y, where there are any."""
    widths = {}
    for name, low, high, middle in (("xerr", "x_low", "x_high", "x"), ("yerr", "low", "high", "y")):
        if rows[high].notna().any():
            widths[name] = np.nan_to_num(np.array([rows[middle] - rows[low], rows[high] - rows[middle]]))
    if widths:
        axes.errorbar(
            rows["x"],
            rows["y"],
            fmt="none",
            ecolor=style.color,
            elinewidth=0.6,
            alpha=0.6,
            zorder=style.order,
            **widths,
        )


def _band(axes: Axes, rows: pd.DataFrame, style: Style) -> None:
    """The intervals of y around a line, where there are any."""
    if rows["low"].notna().any():
        axes.fill_between(rows["x"], rows["low"], rows["high"], facecolor=style.color, alpha=0.15, linewidth=0)


def _set_axes(axes: Axes, panel: Panel) -> None:
    if panel.scale.startswith("log"):
        axes.set_xscale("log", base=int(panel.scale[3:]))
    elif panel.scale == "stretched":
        axes.set_xscale("function", functions=(stretch, _unstretch))
        axes.margins(x=0.02)
        axes.set_xticks(stretched_ticks(*axes.get_xlim()))
    if panel.x_ticks:
        powers = panel.scale == "log10" and all(np.log10(panel.x_ticks) % 1 == 0)
        axes.set_xticks(panel.x_ticks, None if powers else [f"{tick:g}" for tick in panel.x_ticks])
    axes.minorticks_off()
    for limits, change in ((panel.x_limits, axes.set_xlim), (panel.y_limits, axes.set_ylim)):
        if limits != (None, None):
            change(*limits)


def _unstretch(position: np.ndarray) -> np.ndarray:
    return 1 - np.exp(-position)


def _legend(drawing: Drawing, panels: list[Axes]) -> list[Artist]:
    """What the drawing's legend names, or else every labelled mark once."""
    if drawing.legend is not None:
        looks = {label: drawing.style(name).line() for label, name in drawing.legend.items()}
        return [Line2D([], [], label=label, **look) for label, look in looks.items()]
    artists: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            artists.setdefault(label, handle)
    return list(artists.values())
