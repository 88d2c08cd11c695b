"""The finite-group lab: final metrics against G beside the exact objective, and recovery against R_G's prediction."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bandit.engine.tables import coverage_column, coverage_label, method_label
from bandit.finite_group.plan import EXACT
from bandit.finite_group.score import diverged_note, final_table, slope_table
from cokl.support.statistics import with_spread
from figures.style import RC, TEXT_WIDTH, Picture, method_style, new_figure, note_diverged, panel_letters

_GROUP_STYLES: dict[str, dict[str, Any]] = {
    "fresh": {"linewidth": 1.3},
    "cached": {"linewidth": 0.8, "fillstyle": "none"},
    "unfiltered": {"linewidth": 0.8, "fillstyle": "none", "linestyle": ":"},
}


def draw_metrics(metrics: pd.DataFrame) -> Picture:
    """A row of panels per mu, for the largest coefficient; means over seeds with 95% t-intervals over G.

    Dashed horizontal lines are the exact objective at the same mu; markers tell the reference groups apart.
    """
    final = final_table(metrics)
    none, final = final[final["method"] == "none"], final[final["method"] != "none"]
    final = final[final["beta"] == final["beta"].max()]
    coverage = coverage_column(metrics)
    columns = {
        "p_correct": r"Correctness $P_{\mathrm{corr}}$",
        coverage: coverage_label(coverage),
        "conditional_kl": r"$D_{\mathrm{KL}}(\pi_{\mathrm{ref}}^{+}\,\Vert\,\pi_\theta^{+})$ [nats]",
    }
    steps = sorted(final["optimizer_steps"].unique())
    with mpl.rc_context(RC):
        figure, panels = new_figure(
            TEXT_WIDTH, 0.7 + 1.9 * len(steps), nrows=len(steps), ncols=3, sharex=True, sharey="col"
        )
        for position, axes in enumerate(panels):
            optimizer_steps, column = steps[position // 3], list(columns)[position % 3]
            _against_group_size(axes, final[final["optimizer_steps"] == optimizer_steps], column)
            if position == 0:
                _note_unregularized(axes, none)
            axes.set_ylabel(columns[column])
            if position % 3 == 1:
                axes.set_title(rf"$\mu = {optimizer_steps}$ ({'on' if optimizer_steps == 1 else 'off'}-policy)")
            if position >= len(panels) - 3:
                axes.set_xlabel("Group size $G$")
        panel_letters(*panels)
        beta = rf"$\beta = {final['beta'].max():g}$"
        figure.legend(
            handles=_legend(final), loc="outside lower center", ncols=4, title=f"Regularizer ({beta}) and its groups"
        )
        note_diverged(figure, diverged_note(metrics))
        sizes = sorted(size for size in final["group_size"].unique() if size != float("inf"))
        figure.caption = (
            f"Sampled groups of {sizes[0]:g} to {sizes[-1]:g} responses beside the exact objective (dashed) at β = "
            f"{final['beta'].max():g}: means over {metrics['seed'].nunique()} seeds at the last step, 95% t-intervals."
        )
    return figure


def _note_unregularized(axes: Axes, none: pd.DataFrame) -> None:
    if len(none):
        axes.axhline(none["p_correct"].iloc[0], color="black", linewidth=0.8, dashes=(1, 1.5), zorder=1)
        axes.annotate(
            method_label("none"), (1, none["p_correct"].iloc[0]), xycoords=("axes fraction", "data"),
            xytext=(0, 2), textcoords="offset points", ha="right", fontsize=6,
        )  # fmt: skip


def _against_group_size(axes: Axes, final: pd.DataFrame, column: str) -> None:
    for (method, groups), rows in final.groupby(["method", "groups"], sort=False):
        style = method_style(str(method))
        if groups == EXACT:
            axes.axhline(rows[column].iloc[0], color=style.color, linewidth=0.9, dashes=(4, 2), zorder=1)
            continue
        axes.errorbar(
            rows["group_size"],
            rows[column],
            yerr=rows[f"{column}_interval"],
            color=style.color,
            marker=style.marker,
            elinewidth=0.6,
            **_GROUP_STYLES[str(groups)],
        )
    sizes = sorted(size for size in final["group_size"].unique() if size != float("inf"))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.minorticks_off()


def _legend(final: pd.DataFrame) -> list[Line2D]:
    handles = []
    for (method, groups), _ in final[final["groups"] != EXACT].groupby(["method", "groups"], sort=False):
        style = method_style(str(method))
        label = method_label(str(method)) + ("" if groups == "fresh" else f", {groups}")
        look = _GROUP_STYLES[str(groups)]
        handles.append(Line2D([], [], color=style.color, marker=style.marker, label=label, **look))
    return [*handles, Line2D([], [], color="#555555", linewidth=0.9, dashes=(4, 2), label=r"exact ($G \to \infty$)")]


def draw_recovery(recovery: pd.DataFrame, method: str = "cokl") -> Picture:
    """Measured against predicted pressure on log Z of one method: a point per cluster, step, seed and coefficient.

    A panel per kind of reference group and mu, and another for off-policy rollouts with the rollout policy's gate. The
    slopes are those of the tables, over all coefficients.
    """
    shown = recovery[
        recovery["method"] == (method if method in set(recovery["method"]) else recovery["method"].iloc[0])
    ]
    panels_of = []
    for (groups, optimizer_steps), rows in shown.groupby(["groups", "optimizer_steps"], sort=False):
        title = f"{groups} reference groups, $\\mu = {optimizer_steps}$"
        panels_of.append((title, rows, "predicted", r"predicted, $(1 - Z_\theta)^G\,|\nabla \log Z|^2$"))
        if (rows["optimizer_steps"] > 1).all():
            gate = r"predicted with the rollout policy's gate, $(1 - Z_{\mathrm{old}})^G\,|\nabla \log Z|^2$"
            panels_of.append((title, rows, "predicted_at_rollout", gate))
    with mpl.rc_context(RC):
        columns = 2 if len(panels_of) > 1 else 1
        lines = -(-len(panels_of) // columns)
        figure, panels = new_figure(TEXT_WIDTH, 0.5 + 2.5 * lines, nrows=lines, ncols=columns)
        for axes, (title, rows, column, label) in zip(panels, panels_of, strict=False):
            _scatter(axes, rows, column)
            axes.set_title(title)
            axes.set_xlabel(f"{label} [nats]")
            axes.set_ylabel("measured [nats]")
        for axes in panels[len(panels_of) :]:
            axes.remove()
        panel_letters(*panels[: len(panels_of)])
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), markerscale=3)
        slopes = slope_table(shown, ["groups", "optimizer_steps"]).to_dict("records")
        said = "; ".join(
            f"{row['groups']} groups, mu = {row['optimizer_steps']}: "
            f"{with_spread(row['slope'], row['slope_interval'], 3)}"
            for row in slopes
        )
        figure.caption = (
            f"Pressure on log Z that finite groups add, measured cluster by cluster against Appendix B's prediction "
            f"({method_label(str(shown['method'].iloc[0]))}). Slope of measured on predicted, {said}."
        )
    return figure


def _scatter(axes: Axes, rows: pd.DataFrame, column: str) -> None:
    sizes = sorted(rows["group_size"].unique())
    colors = mpl.colormaps["viridis"]([index / max(len(sizes) - 1, 1) for index in range(len(sizes))])
    largest = rows[column].max()
    axes.plot([0, largest], [0, largest], color="black", linewidth=0.8, dashes=(4, 2), label="slope 1", zorder=3)
    for size, color in zip(sizes, colors, strict=True):
        points = rows[rows["group_size"] == size]
        axes.plot(
            points[column], points["measured"], ".", color=color, markersize=2.5, markeredgewidth=0, alpha=0.5,
            label=f"$G = {size:g}$", rasterized=True,
        )  # fmt: skip
    slopes = slope_table(rows, ["method"]).iloc[0]
    name = "slope" if column == "predicted" else "slope_at_rollout"
    text = with_spread(slopes[name], slopes[f"{name}_interval"], 3)
    axes.text(0.03, 0.95, f"slope {text}", transform=axes.transAxes, va="top")
