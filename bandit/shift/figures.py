"""The task-shift lab's figures: trade-off, beta, KL batch, training dynamics, and the decomposition of forgetting.

Where methods would crowd one panel each has its own, with the others in grey behind it or on the same axes. Points are
means over the reported seeds, bars and bands 95% t-intervals; where seeds are few, thin lines are single seeds.
"""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bandit.shift.report import DRIFTS, each_seed, tables
from bandit.shift.score import ANCHORS, diverged_note, label
from cokl.support.statistics import with_spread
from figures.style import RC, SEED_LINES, TEXT_WIDTH, Picture, method_style, new_figure, note_diverged

_COLUMNS = 5
_GREY = "#c9c9c9"
_DRIFT_LOOKS: dict[str, tuple[str, Any]] = {
    "mass_drift": ("correctness mass", {"facecolor": "white", "hatch": "/////"}),
    "correct_drift": ("within the correct", {"facecolor": "#4d4d4d"}),
    "incorrect_drift": ("within the incorrect", {"facecolor": "#bdbdbd"}),
}
_LINES: Any = ({"linestyle": "-", "markerfacecolor": None}, {"linestyle": "--", "markerfacecolor": "white"})


def draw_all(table: pd.DataFrame) -> dict[str, Picture]:
    """Every figure of a shift table by name; those with a panel per method once for each mode."""
    made = tables(table)
    few = table.loc[table["role"] == "report", "seed"].nunique() < SEED_LINES
    seeds = each_seed(table) if few else {}
    figures = {}
    for mode in table["mode"].unique():
        of_mode = {name: frame[frame["mode"] == mode] for name, frame in made.items()}
        of_seeds = {name: frame[frame["mode"] == mode] for name, frame in seeds.items()}
        figures[f"shift_tradeoff_{mode}"] = draw_tradeoff(of_mode["beta_search"])
        figures[f"shift_beta_{mode}"] = draw_beta(of_mode["beta_search"], of_seeds.get("beta_search"))
        figures[f"shift_dynamics_{mode}"] = draw_dynamics(of_mode["dynamics"], of_seeds.get("dynamics"))
        figures[f"shift_decomposition_{mode}"] = draw_decomposition(of_mode["decomposition"], of_mode["dynamics"])
    if len(made["kl_batch"]):
        figures["shift_kl_batch"] = draw_kl_batch(made["kl_batch"])
    for figure in figures.values():
        note_diverged(figure, diverged_note(table))
    return figures


def draw_tradeoff(search: pd.DataFrame) -> Picture:
    """Retention against adaptation over beta, a panel per method; a star marks the coefficient chosen as best."""
    search = search[search["role"] == "report"]
    with mpl.rc_context(RC):
        figure, panels = _panel_per_method(search)
        for method, axes in panels.items():
            for other in panels:
                points = search[search["method"] == other]
                axes.plot(points["adaptation"], points["retention"], color=_GREY, linewidth=0.7, zorder=1)
            points, style = search[search["method"] == method], method_style(method)
            axes.plot(points["adaptation"], points["retention"], zorder=4, **style.line())
            axes.errorbar(
                points["adaptation"],
                points["retention"],
                xerr=_finite(points["adaptation_half_width"]),
                yerr=_finite(points["retention_half_width"]),
                fmt="none",
                ecolor=style.color,
                elinewidth=0.6,
                alpha=0.7,
            )
            best = points[points["best"]]
            axes.plot(best["adaptation"], best["retention"], **_BEST)
            axes.plot([0, 100], [100, 0], linestyle="none", marker="+", color="black", markersize=5)
        _label_outer(list(panels.values()), "Adaptation", "Retention")
        handles = [
            Line2D([], [], color="#444444", marker="o", label=r"the panel's method, a point per $\beta$"),
            Line2D([], [], color=_GREY, label="the other methods"),
            Line2D([], [], label=r"best $\beta$ (selection seeds)", **_BEST),
            Line2D([], [], linestyle="none", marker="+", color="black", label="Base (0, 100), GRPO w/o KL (100, 0)"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
        best = search[search["best"] & ~search["method"].isin(ANCHORS)]
        order = best.sort_values("overall", ascending=False)
        figure.caption = (
            f"Retention against adaptation over β ({_modes(search)}), a panel per method. Overall at the chosen "
            f"coefficients: {_listed(order, 'overall', 1)}."
        )
    return figure


def draw_beta(search: pd.DataFrame, seeds: pd.DataFrame | None = None) -> Picture:
    """Retention and adaptation against beta, a panel per method; `seeds` are rows of single seeds, drawn for bands."""
    search = search[search["role"] == "report"]
    with mpl.rc_context(RC):
        figure, panels = _panel_per_method(search)
        for method, axes in panels.items():
            points = search[search["method"] == method]
            _two_curves(
                axes, points, "beta", ("retention", "adaptation"), method_style(method).color, _of(seeds, method)
            )
            chosen = points[points["best"]]
            axes.plot(chosen["beta"], chosen["overall"], **_BEST)
            axes.set_xscale("log")
            axes.minorticks_off()
        _label_outer(list(panels.values()), r"$\beta$", "Normalized score")
        best = Line2D([], [], label=r"Overall at the best $\beta$ (selection seeds)", **_BEST)
        figure.legend(handles=[*_two_handles("retention", "adaptation"), best], loc="outside lower center", ncols=3)
        betas = sorted(search.loc[~search["method"].isin(ANCHORS), "beta"].unique())
        figure.caption = (
            f"Retention and adaptation against the coefficient ({_modes(search)}), {len(betas)} values from "
            f"{betas[0]:g} to {betas[-1]:g}; the star is Overall at the one chosen on the selection seeds."
        )
    return figure


def draw_dynamics(dynamics: pd.DataFrame, seeds: pd.DataFrame | None = None) -> Picture:
    """Correctness on both tasks during training at the best coefficients, a panel per method, GRPO in grey behind.

    seeds: rows of single seeds, drawn instead of bands.
    """
    with mpl.rc_context(RC):
        figure, panels = _panel_per_method(dynamics)
        grpo = dynamics[dynamics["method"] == "none"]
        for method, axes in panels.items():
            for column, line in zip(_TASKS, _LINES, strict=True):
                axes.plot(grpo["step"], grpo[column], color=_GREY, linestyle=line["linestyle"], zorder=1)
            points = dynamics[dynamics["method"] == method]
            color = method_style(method).color
            _two_curves(axes, points, "step", _TASKS, color, _of(seeds, method), markers=False)
            beta = points["beta"].iloc[0]
            axes.text(0.97, 0.05, rf"$\beta={beta:g}$", transform=axes.transAxes, ha="right", fontsize=7)
            axes.set_ylim(0, 1)
        _label_outer(list(panels.values()), "Step after the shift", "Correctness")
        grey = Line2D([], [], color=_GREY, label="GRPO w/o KL")
        figure.legend(handles=[*_two_handles("prior task", "new task"), grey], loc="outside lower center", ncols=3)
        last = dynamics[dynamics["step"] == dynamics["step"].max()].sort_values("prior_correct", ascending=False)
        figure.caption = (
            f"Correctness on both tasks after the shift ({_modes(dynamics)}), each method at its best coefficient. "
            f"Prior task at step {last['step'].max()}: {_listed(last, 'prior_correct', 2)}."
        )
    return figure


def draw_decomposition(decomposition: pd.DataFrame, dynamics: pd.DataFrame) -> Picture:
    """The three drifts of Eq. 7 at the end, for every method at its best coefficient, and over training for some."""
    ends = decomposition[decomposition["setting"] == "best"]
    followed = [method for method in ("none", "correct_forward_kl", "cokl") if method in set(dynamics["method"])]
    with mpl.rc_context({**RC, "hatch.linewidth": 0.6, "axes.axisbelow": True}):
        figure, axes = new_figure(
            TEXT_WIDTH, 2.9, ncols=1 + len(followed), gridspec_kw={"width_ratios": [2.2, *[1] * len(followed)]}
        )
        bars, places = axes[0], np.arange(len(ends))[::-1]
        left = np.zeros(len(ends))
        for column in DRIFTS:
            bars.barh(
                places, ends[column], left=left, height=0.7, edgecolor="black", linewidth=0.5, **_DRIFT_LOOKS[column][1]
            )
            left += ends[column].to_numpy()
        bars.errorbar(left, places, xerr=_finite(ends["drift_half_width"]), fmt="none", ecolor="black", elinewidth=0.7)
        names = [
            f"{label(m)}" + (rf", $\beta={b:g}$" if b else "")
            for m, b in zip(ends["method"], ends["beta"], strict=True)
        ]
        bars.set_yticks(places, names)
        bars.grid(axis="y", visible=False)
        bars.set_xlabel("Drift on the prior task [nats]")
        for panel, method in zip(axes[1:], followed, strict=True):
            curve = dynamics[dynamics["method"] == method]
            panel.stackplot(curve["step"], *(curve[column] for column in DRIFTS), linewidth=0.5, edgecolor="black")
            for area, column in zip(panel.collections, DRIFTS, strict=True):
                area.set(**_DRIFT_LOOKS[column][1])
            panel.set_title(label(method), fontsize=7)
            panel.set_xlabel("Step")
            panel.margins(x=0)
            panel.set_ylim(bottom=0)
        looks = [Patch(edgecolor="black", linewidth=0.5, label=name, **look) for name, look in _DRIFT_LOOKS.values()]
        figure.legend(handles=looks, loc="outside lower center", ncols=3)
        figure.caption = (
            f"What forgetting is made of (Eq. 7, {_modes(ends)}), in nats of drift on the prior task at each method's "
            f"best coefficient, and over training. Together: {_listed(ends.sort_values('drift'), 'drift', 2)}."
        )
    return figure


def draw_kl_batch(batches: pd.DataFrame) -> Picture:
    """Retention and adaptation against prompts per update, a row per mode; each method at one coefficient."""
    modes = list(batches["mode"].unique())
    with mpl.rc_context(RC):
        figure, axes = new_figure(TEXT_WIDTH, 1.0 + 1.7 * len(modes), nrows=len(modes), ncols=2, sharex=True)
        handles = {}
        for row, mode in enumerate(modes):
            for panel, column in zip(axes[2 * row :], ("retention", "adaptation"), strict=False):
                for (method, _), points in batches[batches["mode"] == mode].groupby(["method", "beta"], sort=False):
                    style, half_width = method_style(str(method)), _finite(points[f"{column}_half_width"])
                    (line,) = panel.plot(points["kl_prompts"], points[column], label=label(str(method)), **style.line())
                    panel.errorbar(
                        points["kl_prompts"], points[column], half_width, fmt="none", ecolor=style.color, elinewidth=0.7
                    )
                    handles[method] = line
                panel.set_xscale("log", base=2)
                sizes = sorted(batches["kl_prompts"].unique())
                panel.set_xticks(sizes, [f"{size:g}" for size in sizes])
                panel.minorticks_off()
                panel.set_ylabel(f"{column.capitalize()} ({mode})")
        for panel in axes[-2:]:
            panel.set_xlabel("KL prompts per update")
        figure.legend(handles=list(handles.values()), loc="outside lower center", ncols=4)
        figure.caption = (
            f"Retention and adaptation against the prompts in the KL batch, {sizes[0]:g} to {sizes[-1]:g} "
            f"({_modes(batches)}); bars are 95% t-intervals."
        )
    return figure


def _modes(rows: pd.DataFrame) -> str:
    """ "exact", "sampled", or both."""
    return " and ".join(map(str, rows["mode"].unique()))


def _listed(rows: pd.DataFrame, column: str, digits: int) -> str:
    """ "CoKL 41.2 ± 3.0, Reverse KL 12.0 ± 1.1"."""
    pairs = zip(rows["method"], rows[column], rows[f"{column}_half_width"], strict=True)
    return ", ".join(f"{label(method)} {with_spread(mean, half_width, digits)}" for method, mean, half_width in pairs)


_BEST: Any = {"linestyle": "none", "marker": "*", "markersize": 8, "color": "black", "mfc": "white", "zorder": 6}
_TASKS = ("prior_correct", "new_correct")


def _panel_per_method(rows: pd.DataFrame) -> tuple[Picture, dict[str, Axes]]:
    """A figure with a titled panel per regularized method of `rows`, on common axes."""
    methods = [method for method in rows["method"].unique() if method not in ANCHORS]
    columns = min(_COLUMNS, len(methods))
    lines = math.ceil(len(methods) / columns)
    figure, axes = new_figure(TEXT_WIDTH, 0.75 + 1.45 * lines, nrows=lines, ncols=columns, sharex=True, sharey=True)
    for unused in axes[len(methods) :]:
        unused.set_visible(False)
    panels = dict(zip(methods, axes, strict=False))
    for method, panel in panels.items():
        panel.set_title(label(method), fontsize=7)
    return figure, panels


def _two_curves(
    axes: Axes,
    points: pd.DataFrame,
    x: str,
    columns: tuple[str, str],
    color: str,
    seeds: pd.DataFrame | None,
    markers: bool = True,
) -> None:
    """The first column solid and filled, the second dashed and open, with their intervals as bands or their seeds."""
    for column, line in zip(columns, _LINES, strict=True):
        look = {**line, "markerfacecolor": line["markerfacecolor"] or color, "marker": "o" if markers else ""}
        axes.plot(points[x], points[column], color=color, **look)
        if seeds is not None:
            for _, run in seeds.groupby("seed"):
                axes.plot(run[x], run[column], color=color, linestyle=line["linestyle"], linewidth=0.5, alpha=0.6)
            continue
        half_width = np.asarray(_finite(points[f"{column}_half_width"]))
        axes.fill_between(
            points[x], points[column] - half_width, points[column] + half_width, color=color, alpha=0.15, lw=0
        )


def _of(seeds: pd.DataFrame | None, method: str) -> pd.DataFrame | None:
    return None if seeds is None else seeds[seeds["method"] == method]


def _two_handles(first: str, second: str) -> list[Line2D]:
    return [
        Line2D([], [], color="#444444", linestyle=line["linestyle"], label=name)
        for name, line in zip((first, second), _LINES, strict=True)
    ]


def _finite(half_widths: pd.Series) -> pd.Series:
    """Zero where a single seed leaves the interval unknown."""
    return half_widths.where(np.isfinite(half_widths), 0.0)


def _label_outer(panels: list[Axes], x: str, y: str) -> None:
    """Axis labels at the left column and under each column's lowest panel."""
    columns = min(_COLUMNS, len(panels))
    for place, panel in enumerate(panels):
        if place % columns == 0:
            panel.set_ylabel(y)
        if place + columns >= len(panels):
            panel.set_xlabel(x)
            panel.tick_params(labelbottom=True)
