"""The finite-group lab: final metrics against G beside the exact objective, and the recovery against its prediction."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from bandit.engine.tables import coverage_column, coverage_label, method_label
from bandit.finite_group.plan import EXACT
from bandit.finite_group.score import ESTIMATE, final_table, read_results, slope_table
from cokl.support.statistics import with_spread
from figures.page import Section, color, curve, legend, look, plot, spread
from figures.page import table as html_table


def section(folder: Path) -> Section:
    """Metrics and recovery of one finished lab."""
    metrics, recovery = read_results(folder)
    final, name, coverage = final_table(metrics), folder.name, coverage_column(metrics)
    columns = {
        "p_correct": "Correctness",
        coverage: coverage_label(coverage),
        "conditional_kl": "Conditional KL [nats]",
    }
    final = final[(final["method"] != "none") & (final["beta"] == final["beta"].max())]
    final = final[final["optimizer_steps"] == final["optimizer_steps"].min()]
    plots = {f"{name}-metrics": _metrics(final, columns)}
    methods = [str(method) for method in final["method"].unique()]
    beta, optimizer_steps = final["beta"].max(), final["optimizer_steps"].min()
    at = f"β = {beta:g}, mu = {optimizer_steps}"
    said = (
        f"Final metrics against group size at {at}. Open markers: cached groups, dotted: unfiltered ones; lines "
        "without markers: the exact objective."
    )
    places = [plot(f"{name}-metrics", said, tall=True)]
    if len(recovery):
        slopes = slope_table(recovery, ESTIMATE)
        plots[f"{name}-recovery"] = _recovery(slopes)
        places.append(
            plot(f"{name}-recovery", "Mean recovery on log Z, measured against predicted (Appendix B): a point per G.")
        )
        places.append(html_table(_slopes(slopes), "Slope of measured on predicted; 1 is the prediction."))
    return Section("finite-group", "Finite groups", legend(methods, method_label) + "".join(places), name, plots)


def _metrics(final: pd.DataFrame, columns: dict[str, str]) -> go.Figure:
    figure = make_subplots(rows=len(columns), cols=1, shared_xaxes=True, vertical_spacing=0.05)
    for row, (column, title) in enumerate(columns.items(), start=1):
        for (method, groups), points in final.groupby(["method", "groups"], sort=False):
            name = str(method)
            if groups == EXACT:
                exact = float(points[column].iloc[0])
                sizes = final.loc[final["groups"] != EXACT, "group_size"]
                line = go.Scatter(
                    x=[sizes.min(), sizes.max()], y=[exact, exact], mode="lines", meta={"method": name},
                    line={"color": color(name), "width": 1.5, "dash": "dash"}, hovertemplate=f"{method_label(name)}, "
                    "exact objective: %{y:.4f}<extra></extra>",
                )  # fmt: skip
            else:
                named = f"<b>{method_label(name)}</b>, {groups} groups"
                style = look(name)
                if groups != "fresh":
                    style["marker"]["symbol"] = style["marker"]["symbol"].removesuffix("-open") + "-open"
                if groups == "unfiltered":
                    style["line"]["dash"] = "1px,3px"
                line = curve(
                    name,
                    f"{method_label(name)}, {groups}",
                    points["group_size"],
                    points[column],
                    error_y=spread(points[f"{column}_interval"], name),
                    hovertemplate=f"{named}<br>G = %{{x:~g}}: %{{y:.4f}}<extra></extra>",
                    **style,
                )
            figure.add_trace(line, row=row, col=1)
        figure.update_yaxes(title_text=title, row=row, col=1)
    figure.update_xaxes(type="log", dtick=0.30103, tickformat="~g")
    figure.update_xaxes(title_text="Group size G", row=len(columns), col=1)
    return figure


def _recovery(slopes: pd.DataFrame) -> go.Figure:
    figure = go.Figure()
    largest = float(slopes["predicted"].max())
    figure.add_trace(
        go.Scatter(
            x=[0, largest], y=[0, largest], mode="lines", hoverinfo="skip",
            line={"color": "#777777", "dash": "dash", "width": 1},
        )
    )  # fmt: skip
    for method, points in slopes.groupby("method", sort=False):
        name = str(method)
        trace = curve(
            name,
            method_label(name),
            points["predicted"],
            points["measured"],
            customdata=points[["group_size", "beta", "groups", "optimizer_steps"]].astype(str).to_numpy(),
            hovertemplate=f"<b>{method_label(name)}</b>, β = %{{customdata[1]}}, %{{customdata[2]}} groups, mu = "
            "%{customdata[3]}<br>G = %{customdata[0]}<br>predicted %{x:.4g}, measured %{y:.4g}<extra></extra>",
        )
        figure.add_trace(trace.update(mode="markers"))
    figure.update_layout(xaxis_title="Predicted [nats]", yaxis_title="Measured [nats]")
    return figure


def _slopes(slopes: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "method": slopes["method"].map(method_label),
            "β": slopes["beta"].map("{:g}".format),
            "groups": slopes["groups"],
            "mu": slopes["optimizer_steps"],
            "G": slopes["group_size"].map("{:g}".format),
            "slope": [with_spread(*pair, 4) for pair in zip(slopes["slope"], slopes["slope_interval"], strict=True)],
        }
    )
