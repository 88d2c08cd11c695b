"""The task-shift lab: the frontier of retention against adaptation, its tables, and correctness during training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from bandit.shift.report import CAPTIONS, readable, tables
from bandit.shift.run import COLUMNS
from bandit.shift.score import ANCHORS, label
from cokl.support.files import read_result
from figures.page import Section, curve, legend, plot, spread, text
from figures.page import table as html_table
from figures.style import SEED_LINES

_SHOWN = ("table1_normalized", "equal_adaptation", "decomposition", "zero_correct", "kl_batch", "table1_raw")


def section(folder: Path) -> Section:
    """Figures and tables of one finished lab, for each of its modes."""
    lab = read_result(folder / "shift.parquet", COLUMNS)
    made, few = tables(lab), few_seeds(lab)
    name, search = folder.name, made["beta_search"]
    modes = [str(mode) for mode in search["mode"].unique()]
    methods = [str(method) for method in made["dynamics"]["method"].unique() if method != "base"]
    places, plots = [], {}
    for mode in modes:
        ours = {key: frame[frame["mode"] == mode] for key, frame in made.items()}
        first, second = f"{name}-{mode}-frontier", f"{name}-{mode}-dynamics"
        plots[first] = frontier(ours["beta_search"], bars=not few)
        plots[second] = _dynamics(ours["dynamics"])
        said = (
            f"Retention against adaptation ({mode}): a point is a coefficient, bars are 95% t-intervals (none below "
            f"{SEED_LINES} seeds); crosses mark Base (0, 100) and GRPO w/o KL (100, 0), a ring the coefficient chosen "
            "as best."
        )
        places += [
            plot(first, said),
            plot(second, f"Correctness on both tasks at the best coefficients ({mode}).", tall=True),
        ]
    blocks = folded({key: made[key] for key in _SHOWN}, readable, CAPTIONS)
    body = f"<p>Intervals are over the reported seeds.</p>{legend(methods, label)}{''.join(places)}{blocks}"
    return Section("shift", "Forgetting under task shift", body, name, plots)


def folded(
    made: Mapping[str, pd.DataFrame], shown: Callable[[pd.DataFrame], pd.DataFrame], captions: Mapping[str, str]
) -> str:
    """A block for each table that has rows, the first of all open. shown: a table as people read it."""
    first = next(iter(made))
    return "".join(
        f"<details{' open' if key == first else ''}><summary>{text(key)}</summary>"
        f"{html_table(shown(table), captions[key])}</details>"
        for key, table in made.items()
        if len(table)
    )


def few_seeds(lab: pd.DataFrame) -> bool:
    """Whether a lab has too few reported seeds for bars, which would then fill the plot."""
    return bool(lab.loc[lab["role"] == "report", "seed"].nunique() < SEED_LINES)


def frontier(search: pd.DataFrame, bars: bool) -> go.Figure:
    """Retention against adaptation over the coefficients of a search; rings where `best` holds."""
    figure = go.Figure()
    reported = search[search["role"] == "report"]
    for method, points in reported[~reported["method"].isin(ANCHORS)].groupby("method", sort=False):
        name = str(method)
        figure.add_trace(
            curve(
                name,
                label(name),
                points["adaptation"],
                points["retention"],
                error_x=spread(points["adaptation_half_width"], name) if bars else None,
                error_y=spread(points["retention_half_width"], name) if bars else None,
                customdata=points[["beta", "adaptation_half_width", "retention_half_width", "overall"]].to_numpy(),
                hovertemplate=f"<b>{label(name)}</b>, β = %{{customdata[0]:~g}}<br>adaptation %{{x:.1f}} ± "
                "%{customdata[1]:.1f}<br>retention %{y:.1f} ± %{customdata[2]:.1f}<br>Overall %{customdata[3]:.1f}"
                "<extra></extra>",
            )
        )
        best = points[points["best"]]
        ring = {"size": 15, "symbol": "circle-open", "color": "#555555", "line": {"width": 2}}
        figure.add_trace(
            go.Scatter(
                x=best["adaptation"].tolist(), y=best["retention"].tolist(), mode="markers", marker=ring,
                meta={"method": name}, hoverinfo="skip",
            )
        )  # fmt: skip
    cross = {"symbol": "cross-thin", "size": 12, "line": {"width": 2, "color": "#555555"}}
    figure.add_trace(go.Scatter(x=[0, 100], y=[100, 0], mode="markers", marker=cross, hoverinfo="skip"))
    figure.update_layout(xaxis_title="Adaptation", yaxis_title="Retention")
    return figure


def _dynamics(dynamics: pd.DataFrame) -> go.Figure:
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    for row, column in enumerate(("prior_correct", "new_correct"), start=1):
        for method, points in dynamics[dynamics["method"] != "base"].groupby("method", sort=False):
            name = str(method)
            line = curve(
                name,
                label(name),
                points["step"],
                points[column],
                customdata=points[["beta", f"{column}_half_width"]].to_numpy(),
                hovertemplate=f"<b>{label(name)}</b>, β = %{{customdata[0]:~g}}<br>step %{{x}}: %{{y:.3f}} ± "
                "%{customdata[1]:.3f}<extra></extra>",
            )
            figure.add_trace(line, row=row, col=1)
    figure.update_yaxes(title_text="Prior task", row=1, col=1)
    figure.update_yaxes(title_text="New task", row=2, col=1)
    figure.update_xaxes(title_text="Step after the shift", row=2, col=1)
    return figure
