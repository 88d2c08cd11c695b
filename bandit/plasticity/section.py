"""The plasticity lab on the page: correctness against plasticity, learning curves at the match, and the tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from bandit.engine.tables import method_label as label
from bandit.plasticity.claims import judge
from bandit.plasticity.figures import curves
from bandit.plasticity.report import CAPTIONS, legend, readable, tables
from bandit.plasticity.score import read_plasticity, runs
from cokl.support.statistics import summarize
from figures.page import Section, curve, plot, spread, text
from figures.page import legend as chips
from figures.page import table as html_table

_TRADEOFF = {"p_correct": "Correctness after phase 1", "plasticity": "Plasticity"}
_CURVES = {"step": "Step of phase 2", "reward": "New reward"}


def section(folder: Path) -> Section:
    """Figures and tables of one finished lab."""
    table, config = read_plasticity(folder)
    name, first = folder.name, config.changes[0]
    scored = runs(table)
    rows = scored[(scored["role"] == "report") & (scored["change"] == first) & (scored["phase"] != "sampled")]
    rows = rows[rows["mode"] == "sampled"]
    means = summarize(rows, ["method", "beta"], ["p_correct", "plasticity"])
    said = f"Correctness after phase 1 against plasticity after {first}, a point per coefficient."
    plots, places = {f"{name}-plasticity": _lines(means, _TRADEOFF, "beta")}, [plot(f"{name}-plasticity", said)]
    for change, mode, points in curves(table, config):
        if mode == "sampled" and (change == first or change.startswith("moved")):
            plots[f"{name}-{change}"] = _lines(points, _CURVES, "step")
            places.append(plot(f"{name}-{change}", f"The new reward during phase 2 at the match: {change}."))
    claims = "".join(f"<li>{text(claim.statement)}: {text(claim.measured)}</li>" for claim in judge(table, config))
    folded = "".join(
        f"<details><summary>{text(CAPTIONS[key])}</summary>{html_table(readable(frame))}</details>"
        for key, frame in tables(table, config).items()
    )
    methods = [str(method) for method in rows["method"].unique()]
    body = f"<p>{text(legend(table, config))}</p>{chips(methods, label)}{''.join(places)}<ul>{claims}</ul>{folded}"
    return Section("plasticity", "What can still be learned", body, name, plots)


def _lines(rows: pd.DataFrame, axes: dict[str, str], known_by: str) -> go.Figure:
    """A curve per method; axes: the columns of x and y with their titles; known_by: what a point is called after."""
    (x, x_title), (y, y_title) = axes.items()
    figure = go.Figure()
    for key, points in rows.groupby("method", sort=False):
        method, name = str(key), label(str(key))
        hover = f"<b>{name}</b>, {known_by} %{{customdata:g}}<br>{x} %{{x:.4g}}, {y} %{{y:.4f}}<extra></extra>"
        bars = spread(points[f"{y}_half_width"], method)
        options = {"error_y": bars, "customdata": points[known_by], "hovertemplate": hover}
        figure.add_trace(curve(method, name, points[x], points[y], **options))
    return figure.update_layout(xaxis_title=x_title, yaxis_title=y_title)
