"""Draws a table of marks with Plotly, for the page: bands and areas of intervals are left to what hovering shows."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from matplotlib.colors import to_hex
from plotly.subplots import make_subplots

from figures.marks import Drawing, Panel, stretch, stretched_ticks
from figures.page import look
from figures.style import Style

_PLAIN = {r"\beta": "β", r"\mu": "μ", r"\infty": "∞", r"\to": "→", "$": "", r"\,": " "}


def render(drawing: Drawing) -> go.Figure:
    """The panels below each other; a trace isolates with its method."""
    count = len(drawing.panels)
    shared = bool(drawing.shared.get("sharex"))
    figure = make_subplots(rows=count, cols=1, shared_xaxes=shared, vertical_spacing=0.15 / count)
    for row, (name, panel) in enumerate(drawing.panels.items(), start=1):
        for kind, label, style, method, rows in drawing.series(name):
            if trace := _trace(panel, kind, label, style, rows):
                figure.add_trace(trace.update(meta={"method": method} if method else None), row=row, col=1)
        figure.update_yaxes(title_text=plain(panel.y), row=row, col=1)
        if row == count or not shared:
            figure.update_xaxes(title_text=plain(panel.x), row=row, col=1)
        if panel.y_names:
            figure.update_yaxes(tickvals=list(panel.y_names), ticktext=list(panel.y_names.values()), row=row, col=1)
        if panel.scale.startswith("log"):
            step = {"dtick": 0.30103, "tickformat": "~g"} if panel.scale == "log2" else {}
            figure.update_xaxes(type="log", **step, row=row, col=1)
        if panel.scale == "stretched":
            seen = drawing.marks.loc[drawing.marks["panel"] == name, "x"]
            ticks = panel.x_ticks or stretched_ticks(seen.min(), seen.max())
            places, words = stretch(np.asarray(ticks)).tolist(), [f"{tick:g}" for tick in ticks]
            figure.update_xaxes(tickvals=places, ticktext=words, row=row, col=1)
        if panel.x_values:
            figure.update_xaxes(type="category", showgrid=False, row=row, col=1)
            figure.update_yaxes(type="category", showgrid=False, row=row, col=1)
    return figure


def plain(label: str) -> str:
    """A label without Matplotlib's mathematics."""
    for mathematics, words in _PLAIN.items():
        label = label.replace(mathematics, words)
    return re.sub(r"\s+", " ", label)


def _trace(panel: Panel, kind: str, label: str, style: Style, rows: pd.DataFrame) -> go.BaseTraceType | None:
    drawn = rows
    if panel.scale == "stretched":
        drawn = rows.assign(**{column: stretch(rows[column].to_numpy()) for column in ("x", "x_low", "x_high")})
    x, y = drawn["x"].tolist(), drawn["y"].tolist()
    match kind:
        case "line" | "band" | "point" | "seed":
            mode = {"point": "markers", "seed": "lines"}.get(kind, "lines+markers" if style.marker else "lines")
            bars = (
                {} if kind == "band" else {"error_x": _spread(drawn, "x", style), "error_y": _spread(drawn, "y", style)}
            )
            hover = _hover(panel, label, rows)
            return go.Scatter(x=x, y=y, name=plain(label), mode=mode, **look(style), **bars, **hover)
        case "hline":
            across = rows.loc[:, ["x_low", "x_high"]].iloc[0].tolist()
            name = plain(label or str(rows["text"].iloc[0]))
            words = f"{name}: %{{y:.4g}}<extra></extra>"
            line = look(style)["line"]
            return go.Scatter(x=across, y=y * 2, name=name, mode="lines", line=line, hovertemplate=words)
        case "cell":
            return _cells(panel, label, style, rows)
    return None


def _spread(rows: pd.DataFrame, name: str, style: Style) -> dict[str, Any] | None:
    """Error bars; none where no interval is known."""
    low, high = ("low", "high") if name == "y" else ("x_low", "x_high")
    if rows[high].isna().all():
        return None
    array = [np.nan_to_num(part).tolist() for part in (rows[high] - rows[name], rows[name] - rows[low])]
    sides = dict(zip(("array", "arrayminus"), array, strict=True))
    return {"type": "data", "symmetric": False, **sides, "color": to_hex(style.color), "thickness": 1, "width": 0}


def _hover(panel: Panel, label: str, rows: pd.DataFrame) -> dict[str, Any]:
    """What is shown on hovering: the label, the mark's own text, and both numbers with their intervals."""
    beside = [
        [f" ± {half:.4g}" if np.isfinite(half) else "" for half in (rows[high] - rows[low]) / 2]
        for low, high in (("x_low", "x_high"), ("low", "high"))
    ]
    words = [f", {text}" if text else "" for text in rows["text"]]
    x = "%{x:.4~g}"
    if panel.scale == "stretched":
        x, beside = "%{customdata[3]}", [*beside, list(map("{:.4g}".format, rows["x"]))]
    template = (
        f"<b>{plain(label)}</b>%{{customdata[0]}}<br>{plain(panel.x)}: {x}%{{customdata[1]}}<br>"
        f"{plain(panel.y)}: %{{y:.4~g}}%{{customdata[2]}}<extra></extra>"
    )
    return {"customdata": list(zip(words, *beside, strict=True)), "hovertemplate": template}


def _cells(panel: Panel, label: str, style: Style, rows: pd.DataFrame) -> go.Heatmap:
    """Squares with words, in shades of their values or all in the style's colour; the rest of the map is left open."""
    z, words = (np.full((len(panel.y_values), len(panel.x_values)), None) for _ in range(2))
    for cell in rows.to_dict("records"):
        cell_index = panel.y_values.index(cell["y"]), panel.x_values.index(cell["x"])
        z[cell_index] = cell["value"] if panel.shades else 0
        written = "<br>".join(filter(None, (label, cell["text"].replace("\n", " "))))
        words[cell_index] = f"{written} ?" if cell["hatched"] else written
    color = to_hex(style.color)
    shades = {"colorscale": "RdBu", "zmin": -panel.shades, "zmax": panel.shades}
    return go.Heatmap(
        x=[f"{x:g}" for x in panel.x_values],
        y=[f"{y:g}" for y in panel.y_values],
        z=z.tolist(),
        text=words.tolist(),
        texttemplate="%{text}",
        hovertemplate=f"{plain(panel.x)} %{{x}}<br>{plain(panel.y)} %{{y}}<br>%{{text}}<extra></extra>",
        hoverongaps=False,
        xgap=2,
        ygap=2,
        showscale=False,
        **(shades if panel.shades else {"colorscale": [[0, color], [1, color]]}),
    )
