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


def section(folder: Path) -> Section:
    """Figures and tables of one finished lab."""
    table, config = read_plasticity(folder)
    name, first = folder.name, config.changes[0]
    scored = runs(table)
    rows = scored[(scored["role"] == "report") & (scored["change"] == first) & (scored["phase"] != "sampled")]
    rows = rows[rows["mode"] == "sampled"]
    said = f"Correctness after phase 1 against plasticity after {first}, a point per coefficient."
    plots, places = {f"{name}-plasticity": _tradeoff(rows)}, [plot(f"{name}-plasticity", said)]
    for change, mode, means in curves(table, config):
        if mode == "sampled" and (change == first or change.startswith("moved")):
            plots[f"{name}-{change}"] = _curves(means)
            places.append(plot(f"{name}-{change}", f"The new reward during phase 2 at the match: {change}."))
    claims = "".join(f"<li>{text(claim.statement)}: {text(claim.measured)}</li>" for claim in judge(table, config))
    folded = "".join(
        f"<details><summary>{text(CAPTIONS[key])}</summary>{html_table(readable(frame))}</details>"
        for key, frame in tables(table, config).items()
    )
    methods = [str(method) for method in rows["method"].unique()]
    body = f"<p>{text(legend(table, config))}</p>{chips(methods, label)}{''.join(places)}<ul>{claims}</ul>{folded}"
    return Section("plasticity", "What can still be learned", body, name, plots)


def _tradeoff(rows: pd.DataFrame) -> go.Figure:
    figure = go.Figure()
    for method, points in rows.groupby("method", sort=False):
        means = summarize(points, ["beta"], ["p_correct", "plasticity"])
        figure.add_trace(
            curve(
                str(method),
                label(str(method)),
                means["p_correct"],
                means["plasticity"],
                error_y=spread(means["plasticity_half_width"], str(method)),
                customdata=means["beta"],
                hovertemplate=f"<b>{label(str(method))}</b>, β = %{{customdata:g}}<br>correctness %{{x:.4f}}, "
                "plasticity %{y:.4f}<extra></extra>",
            )
        )
    return figure.update_layout(xaxis_title="Correctness after phase 1", yaxis_title="Plasticity")


def _curves(means: pd.DataFrame) -> go.Figure:
    figure = go.Figure()
    for method, points in means.groupby("method", sort=False):
        name = label(str(method))
        hover = f"<b>{name}</b><br>step %{{x}}: %{{y:.4f}}<extra></extra>"
        figure.add_trace(curve(str(method), name, points["step"], points["reward"], hovertemplate=hover))
    return figure.update_layout(xaxis_title="Step of phase 2", yaxis_title="New reward")
