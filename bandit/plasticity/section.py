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
from figures.marks import Drawing, Panel, interval, join, marks
from figures.page import Section, plot, text
from figures.page import legend as chips
from figures.page import table as html_table
from figures.plotly_renderer import render

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
    curves_of_methods = [
        marks(
            "lines",
            "line",
            label=label(str(method)),
            method=str(method),
            x=points[x],
            y=points[y],
            text=[f"{known_by} {value:g}" for value in points[known_by]],
            **interval(points, y),
        )
        for method, points in rows.groupby("method", sort=False)
    ]
    return render(Drawing(join(curves_of_methods), {"lines": Panel(x=x_title, y=y_title)}, 1, 3.0, ""))
