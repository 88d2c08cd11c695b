"""The task-shift lab's figures: trade-off, beta, KL batch, training dynamics, and the decomposition of forgetting.

Where methods would crowd one panel each has its own, with the others in grey behind it or on the same axes. Points are
means over the reported seeds, bars and bands 95% t-intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bandit.lab import Tables
from bandit.shift.analysis import ANCHORS, DRIFTS, diverged_note, label, score, tables_of
from bandit.shift.config import ShiftConfig
from cokl.support.statistics import with_spread
from figures.marks import Drawing, Panel, interval, join, marks
from figures.style import Style, method_style

_COLUMNS = 5
_GREY, _INK = "#c9c9c9", "#444444"
_DRIFT_LABELS = ("correctness mass", "within the correct", "within the incorrect")
_TASKS = ("prior_correct", "new_correct")
STYLES = {
    "others": Style(_GREY, width=0.7, order=1),
    "grpo": Style(_GREY, order=1),
    "grpo_dashed": Style(_GREY, dashes=(3.7, 1.6), order=1),
    "best": Style("black", "*", size=8, fill="white", width=0, order=6),
    "anchor": Style("black", "+", size=5, width=0),
    "first": Style(_INK),
    "first_marked": Style(_INK, "o"),
    "second": Style(_INK, dashes=(3.7, 1.6)),
    "mass_drift": Style("white"),
    "correct_drift": Style("#4d4d4d"),
    "incorrect_drift": Style("#bdbdbd"),
    "total": Style("black"),
}


def draw(tables: Tables, config: ShiftConfig) -> dict[str, Drawing]:
    """Every figure of a shift table by name; those with a panel per method once for each mode."""
    table = tables["shift"]
    made = tables_of(score(table))
    drawings = {}
    for mode in table["mode"].unique():
        of_mode = {name: frame[frame["mode"] == mode] for name, frame in made.items()}
        drawings[f"shift_tradeoff_{mode}"] = tradeoff(of_mode["beta_search"])
        drawings[f"shift_beta_{mode}"] = beta(of_mode["beta_search"])
        drawings[f"shift_dynamics_{mode}"] = dynamics(of_mode["dynamics"])
        drawings[f"shift_decomposition_{mode}"] = decomposition(of_mode["decomposition"], of_mode["dynamics"])
    if len(made["kl_batch"]):
        drawings["shift_kl_batch"] = kl_batch(made["kl_batch"])
    return {name: replace(one, note=diverged_note(table)) for name, one in drawings.items()}


def frontier(search: pd.DataFrame) -> Drawing:
    """Retention against adaptation over the coefficients of a search in one panel; rings where `best` holds."""
    reported = search[(search["role"] == "report") & ~search["method"].isin(ANCHORS)]
    parts = []
    for method, points in reported.groupby("method", sort=False):
        ends = interval(points, "adaptation", prefix="x_") | interval(points, "retention")
        text = [f"β = {b:g}, Overall {o:.1f}" for b, o in zip(points["beta"], points["overall"], strict=True)]
        coordinates = {"label": label(str(method)), "x": points["adaptation"], "y": points["retention"]}
        parts.append(marks("", "line", method=method, text=text, **coordinates, **ends))
        best = points[points["best"]]
        parts.append(marks("", "point", method=method, style="best", x=best["adaptation"], y=best["retention"]))
    parts.append(marks("", "point", style="anchor", x=[0, 100], y=[100, 0], label="Base, GRPO w/o KL"))
    return Drawing(join(parts), {"": Panel(x="Adaptation", y="Retention")}, 1, 4, "", STYLES)


def tradeoff(search: pd.DataFrame) -> Drawing:
    """The frontier, a panel per method; a star marks the coefficient chosen as best."""
    search = search[search["role"] == "report"]
    panels, together = _panels(search, Panel(x="Adaptation", y="Retention")), frontier(search).marks
    parts = []
    for method in panels:
        others = together[together["kind"] == "line"].assign(style="others", kind="seed", label="")
        own = together[together["method"].isin([method, ""])].assign(label="")
        parts.append(pd.concat([others, own]).assign(panel=method))
    best = search[search["best"] & ~search["method"].isin(ANCHORS)].sort_values("overall", ascending=False)
    legend = {
        r"the panel's method, a point per $\beta$": "first_marked",
        "the other methods": "others",
        **({r"best $\beta$ (selection seeds)": "best"} if len(best) else {}),
        "Base (0, 100), GRPO w/o KL (100, 0)": "anchor",
    }
    caption = f"Retention against adaptation over β ({_modes(search)}), a panel per method." + (
        f" Overall at the chosen coefficients: {_listed(best, 'overall', 1)}." if len(best) else ""
    )
    return _per_method(parts, panels, caption, legend, 2)


def beta(search: pd.DataFrame) -> Drawing:
    """Retention and adaptation against beta, a panel per method."""
    search = search[search["role"] == "report"]
    panels = _panels(search, Panel(x=r"$\beta$", y="Normalized score", scale="log10"))
    parts, columns = [], ("retention", "adaptation")
    for method in panels:
        points = search[search["method"] == method]
        parts += _two_curves(method, points, "beta", columns)
        best = points[points["best"]]
        parts.append(marks(method, "point", method=method, style="best", x=best["beta"], y=best["overall"]))
    betas = sorted(search.loc[~search["method"].isin(ANCHORS), "beta"].unique())
    caption = (
        f"Retention and adaptation against the coefficient ({_modes(search)}), {len(betas)} values from "
        f"{betas[0]:g} to {betas[-1]:g}; the star is Overall at the one chosen on the selection seeds."
    )
    legend = {"retention": "first", "adaptation": "second", r"Overall at the best $\beta$ (selection seeds)": "best"}
    return _per_method(parts, panels, caption, legend, 3, marker="o")


def dynamics(rows: pd.DataFrame) -> Drawing:
    """Correctness on both tasks during training at the best coefficients, a panel per method, GRPO in grey behind."""
    panels = _panels(rows, Panel(x="Step after the shift", y="Correctness", y_limits=(0, 1)))
    grpo, parts = rows[rows["method"] == "none"], []
    for method in panels:
        for column, style in zip(_TASKS, ("grpo", "grpo_dashed"), strict=True):
            parts.append(marks(method, "band", method="none", style=style, x=grpo["step"], y=grpo[column], run=column))
        points = rows[rows["method"] == method]
        parts += _two_curves(method, points, "step", _TASKS)
        parts.append(marks(method, "text", x=0.97, y=0.05, text=rf"$\beta={points['beta'].iloc[0]:g}$"))
    last = rows[rows["step"] == rows["step"].max()].sort_values("prior_correct", ascending=False)
    legend = {"prior task": "first", "new task": "second", "GRPO w/o KL": "grpo"}
    caption = (
        f"Correctness on both tasks after the shift ({_modes(rows)}), each method at its best coefficient. "
        f"Prior task at step {last['step'].max()}: {_listed(last, 'prior_correct', 2)}."
    )
    return _per_method(parts, panels, caption, legend, 3)


def decomposition(ends: pd.DataFrame, rows: pd.DataFrame) -> Drawing:
    """The three drifts of Eq. 7 at the end, for every method at its best coefficient, and over training for some."""
    ends = ends[ends["setting"] == "best"]
    height = np.arange(len(ends))[::-1]
    total = ends[DRIFTS].sum(axis=1)
    parts = _stacked(ends, "ends", "bar", ("x_low", "x_high"), y=height)
    half = ends["drift_half_width"].where(np.isfinite(ends["drift_half_width"]))
    parts.append(marks("ends", "point", style="total", x=total, y=height, x_low=total - half, x_high=total + half))
    names = [
        label(method) + (rf", $\beta={beta:g}$" if beta else "")
        for method, beta in zip(ends["method"], ends["beta"], strict=True)
    ]
    names_by_height = dict(zip(height.tolist(), names, strict=True))
    panels = {"ends": Panel(x="Drift on the prior task [nats]", y_names=names_by_height)}
    watched = ("none", "correct_forward_kl", "cokl")
    highest = float(rows.loc[rows["method"].isin(watched), DRIFTS].sum(axis=1).max()) or 1.0
    for method in watched:
        curve = rows[rows["method"] == method]
        if len(curve):
            parts += _stacked(curve, method, "area", ("low", "high"), x=curve["step"])
            last = float(curve["step"].max())
            panels[method] = Panel(
                label(method),
                "Step",
                x_ticks=(0, last / 2, last),
                x_limits=(0, 1.1 * last),
                y_limits=(0, 1.05 * highest),
            )
    caption = (
        f"What forgetting is made of (Eq. 7, {_modes(ends)}), in nats of drift on the prior task at each method's "
        f"best coefficient, and over training. Together: {_listed(ends.sort_values('drift'), 'drift', 2)}."
    )
    widths = [2.2, *[1.0] * (len(panels) - 1)]
    return Drawing(join(parts), panels, len(panels), 2.9, caption, STYLES, legend_columns=3, widths=widths)


def _stacked(rows: pd.DataFrame, panel: str, kind: str, sides: tuple[str, str], **position: Any) -> list[pd.DataFrame]:
    """The drifts on top of each other, that of the mass hatched."""
    edges = np.cumsum(np.column_stack([np.zeros(len(rows)), *(rows[column] for column in DRIFTS)]), axis=1)
    return [
        marks(
            panel, kind, label=name, method=rows["method"], style=column, hatched=column == "mass_drift",
            **dict(zip(sides, (edges[:, part], edges[:, part + 1]), strict=True)), **position,
        )
        for part, (column, name) in enumerate(zip(DRIFTS, _DRIFT_LABELS, strict=True))
    ]  # fmt: skip


def kl_batch(batches: pd.DataFrame) -> Drawing:
    """Retention and adaptation against prompts per update, a row per mode; each method at one coefficient."""
    sizes, panels, parts = sorted(batches["kl_prompts"].unique()), {}, []
    for mode in batches["mode"].unique():
        for column in ("retention", "adaptation"):
            panel, y = f"{mode} {column}", f"{column.capitalize()} ({mode})"
            panels[panel] = Panel(x="KL prompts per update", y=y, scale="log2", x_ticks=sizes)
            for (method, _), rows in batches[batches["mode"] == mode].groupby(["method", "beta"], sort=False):
                coordinates = {"x": rows["kl_prompts"], "y": rows[column], **interval(rows, column)}
                parts.append(marks(panel, "line", label=label(str(method)), method=method, **coordinates))
    caption = (
        f"Retention and adaptation against the prompts in the KL batch, {sizes[0]:g} to {sizes[-1]:g} "
        f"({_modes(batches)}); bars are 95% t-intervals."
    )
    return Drawing(join(parts), panels, 2, 1.0 + 0.85 * len(panels), caption, shared={"sharex": True})


def _modes(rows: pd.DataFrame) -> str:
    """ "exact", "sampled", or both."""
    return " and ".join(map(str, rows["mode"].unique()))


def _listed(rows: pd.DataFrame, column: str, digits: int) -> str:
    """ "CoKL 41.2 ± 3.0, Reverse KL 12.0 ± 1.1"."""
    pairs = zip(rows["method"], rows[column], rows[f"{column}_half_width"], strict=True)
    return ", ".join(f"{label(method)} {with_spread(mean, half_width, digits)}" for method, mean, half_width in pairs)


def _panels(rows: pd.DataFrame, axes: Panel) -> dict[str, Panel]:
    """A titled panel per regularized method of `rows`."""
    methods = [str(method) for method in rows["method"].unique() if method not in ANCHORS]
    return {method: replace(axes, title=label(method)) for method in methods}


def _per_method(
    parts: Sequence[pd.DataFrame], panels: dict[str, Panel], caption: str, legend: dict[str, str], columns: int,
    marker: str = "",
) -> Drawing:  # fmt: skip
    """Panels on common axes, whose two curves are a solid and a dashed line, with an open marker, of their method."""
    styles = dict(STYLES)
    for method in panels:
        styles[f"{method} first"] = replace(method_style(method), marker=marker, dashes=())
        styles[f"{method} second"] = replace(styles[f"{method} first"], dashes=(3.7, 1.6), fill="white")
    shown = min(_COLUMNS, len(panels))
    height = 0.75 + 1.45 * -(-len(panels) // shown)
    shared = {"sharex": True, "sharey": True}
    return Drawing(join(parts), panels, shown, height, caption, styles, legend, columns, shared=shared)


def _two_curves(method: str, points: pd.DataFrame, x: str, columns: tuple[str, str]) -> list[pd.DataFrame]:
    """Both columns with their intervals as bands."""
    return [
        marks(
            method, "band", x=points[x], y=points[column], method=method, style=f"{method} {side}",
            **interval(points, column),
        )
        for column, side in zip(columns, ("first", "second"), strict=True)
    ]  # fmt: skip
