"""The pictures of the controlled experiment: Figure 1's scopes, Figure 2's trade-offs and Figure 3's dynamics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bandit.engine.tables import coverage_column, coverage_label, method_label
from bandit.lab import Analysis
from bandit.sweep.analysis import MATCHED_CORRECTNESS, Scored, diverged_note, final_rows, require_sweep
from cokl import regularizers
from cokl.support.statistics import summarize
from figures.marks import Drawing, Panel, interval, join, marks
from figures.style import SEED_LINES, TEXT_WIDTH, Picture, method_style, new_figure, settings

KL = r"$D_{\mathrm{KL}}(\pi_{\mathrm{ref}}^{+}\,\Vert\,\pi_\theta^{+})$ [nats]"
_Q, _BETA = 0.35, 0.5
_CORRECT = np.array([0.46, 0.27, 0.17, 0.10])
_INCORRECT = np.array([0.30, 0.25, 0.20, 0.15, 0.10])
_CORRECT_COLOR, _INCORRECT_COLOR = "#4d4d4d", "#bdbdbd"  # greys, since colours belong to methods
_BENEATH = {"correct_forward_kl": replace(method_style("correct_forward_kl"), width=3, size=6, order=2)}
"""Replay, whose curve is nearly CoKL's: wider, and below it."""
_PARTS = ("correctness mass $Z$", r"within correct, $\pi^{+}$", r"within incorrect, $\pi^{-}$")


def draw(analysis: Analysis) -> dict[str, Drawing]:
    """Figures 2 and 3."""
    return {"figure2_tradeoff": tradeoff(analysis.scored.table), "figure3_dynamics": dynamics(analysis.scored)}


def tradeoff(table: pd.DataFrame) -> Drawing:
    """Figure 2: a point per method and coefficient at the last step, and the reference's.

    Means over seeds, bars their 95% t-intervals, which few seeds have none of. Raises InputError for another table than
    a sweep's.
    """
    require_sweep(table)
    shown = panels(table, x=r"Correctness $P_{\mathrm{corr}}$ (axis stretched towards 1)", scale="stretched")
    final = means(final_rows(table)).sort_values("beta")
    reference = means(table[table["method"] == "reference"])
    few, parts = table["seed"].nunique() < SEED_LINES, []
    for column in shown:
        for method in final_rows(table)["method"].unique():
            points = final[final["method"] == method]
            ends = {} if few else interval(points, "p_correct", prefix="x_") | interval(points, column)
            label, beta = method_label(str(method)), points["beta"].map("β = {:g}".format)
            kind = "line" if len(points) > 1 else "point"
            parts.append(
                marks(
                    column, kind, label=label, method=method, x=points["p_correct"], y=points[column], text=beta, **ends
                )
            )
        star = marks(column, "point", method="reference", x=reference["p_correct"], y=reference[column])
        parts.append(star.assign(label=method_label("reference")))
    styles = {
        "none": replace(method_style("none"), order=5),
        "reference": replace(method_style("reference"), size=7),
        **_BENEATH,
    }
    return Drawing(
        join(parts), shown, 2, 2.75, _tradeoff_caption(table, few), styles, letters=True, note=diverged_note(table)
    )


def _tradeoff_caption(table: pd.DataFrame, few: bool) -> str:
    final = final_rows(table)
    points = final.groupby(["method", "beta"])["p_correct"].mean()
    return (
        f"Correctness against {coverage_column(table).replace('_at_', '@')} (a) and against conditional KL (b) after "
        f"{final['step'].max()} steps: {len(points)} points, a coefficient each, means over {final['seed'].nunique()} "
        f"seeds{'' if few else ', bars 95% intervals'}. Correctness goes from {points.min():.3f} to {points.max():.3f}."
    )


def dynamics(scored: Scored) -> Drawing:
    """Figure 3: a line per method at its matched coefficient over the training steps.

    Means over seeds, bands their 95% t-intervals; few seeds are thin lines.
    """
    shown = panels(scored.table, x="Training step", x_limits=(0, None), y_limits=(0, None))
    rows = pd.concat([scored.runs[scored.runs["method"] == "none"], scored.matched])
    few, parts = scored.runs["seed"].nunique() < SEED_LINES, []
    for column in shown:
        for method in rows["method"].unique():
            run = rows[rows["method"] == method].sort_values("step")
            name = method_label(method)
            label = name if method == "none" else rf"{name}, $\beta={run['beta'].iloc[0]:g}$"
            mean = means(run)
            ends = {} if few else interval(mean, column)
            parts.append(marks(column, "band", label=label, method=method, x=mean["step"], y=mean[column], **ends))
            if few:
                parts.append(marks(column, "seed", method=method, x=run["step"], y=run[column], run=run["seed"]))
    caption = _dynamics_caption(rows, few)
    note = diverged_note(scored.table)
    return Drawing(join(parts), shown, 2, 2.75, caption, _BENEATH, legend_columns=4, letters=True, note=note)


def _dynamics_caption(rows: pd.DataFrame, few: bool) -> str:
    coverage = coverage_column(rows)
    last = rows[rows["step"] == rows["step"].max()].groupby("method", sort=False)[[coverage, "conditional_kl"]].mean()
    ends = "; ".join(
        f"{method_label(str(method))} {row.iloc[0]:.3f} and {row.iloc[1]:.2f} nats" for method, row in last.iterrows()
    )
    spread = "thin lines single seeds" if few else "bands 95% intervals"
    return (
        f"{coverage.replace('_at_', '@').capitalize()} (a) and conditional KL (b) during training, each method at the "
        f"coefficient whose final correctness is closest to {MATCHED_CORRECTNESS}: means over {rows['seed'].nunique()} "
        f"seeds, {spread}. At the end: {ends}."
    )


def means(table: pd.DataFrame) -> pd.DataFrame:
    """A row per method, beta and step: each metric's mean, and half its 95% t-interval as METRIC_half_width."""
    metrics = [name for name in table.columns if name not in ("seed", "method", "beta", "step")]
    return summarize(table, ["method", "beta", "step"], metrics)


def panels(table: pd.DataFrame, **shared: object) -> dict[str, Panel]:
    """Coverage on the left and conditional KL on the right, by their columns."""
    coverage = coverage_column(table)
    return {
        coverage: Panel("Correct answers found: higher is better", y=coverage_label(coverage), **shared),  # type: ignore[arg-type]
        "conditional_kl": Panel("Drift among correct answers: lower is better", y=KL, **shared),  # type: ignore[arg-type]
    }


def schematic() -> Picture:
    """Figure 1: the reference, the optimum under a full-policy KL, and the optimum under CoKL.

    The example has four correct and five incorrect responses and a reference with q = 0.35. The optima of Z - beta * D
    at beta = 0.5 are Theorem 2's for the forward KL and Theorem 1's for CoKL, whose incorrect side is left open.
    """
    full_mass = float(np.asarray(regularizers.get("forward_kl").optimal_mass(_Q, _BETA)))
    cokl_mass = float(np.asarray(regularizers.get("cokl").optimal_mass(_Q, _BETA)))
    with settings({"axes.grid": False}):
        figure, panels = new_figure(TEXT_WIDTH, 2.5, ncols=3, sharey=True)
        _panel(panels[0], "Reference policy", _Q, None)
        _panel(panels[1], rf"Optimum under full forward KL, $\beta={_BETA:g}$", full_mass, (True, True, True))
        _panel(panels[2], r"Optimum under CoKL, any $\beta$", cokl_mass, (False, True, False))
        panels[0].set_ylabel("Probability")
        panels[0].set_ylim(0, 0.66)
        figure.caption = (
            f"What each KL constrains, on the optima of an example with q = {_Q:g}: the full forward KL at β = "
            f"{_BETA:g} holds correctness at {full_mass:.3f} and both conditionals at the reference's; CoKL holds the "
            f"correct conditional alone and lets correctness go to {cokl_mass:g}, whatever β."
        )
    return figure


def _panel(axes: Axes, title: str, mass: float, anchored: tuple[bool, bool, bool] | None) -> None:
    positions = np.concatenate([np.arange(4), 4.8 + np.arange(5)])
    colors = [_CORRECT_COLOR] * 4 + [_INCORRECT_COLOR] * 5
    heights = np.concatenate([mass * _CORRECT, (1 - mass) * _INCORRECT])
    axes.bar(positions, heights, 0.8, color=colors)
    if anchored is not None:
        reference = np.concatenate([_Q * _CORRECT, (1 - _Q) * _INCORRECT])
        outline = axes.bar(positions, reference, 0.8, fill=False, edgecolor="black", linewidth=0.9, label="reference")
        for bar in outline:
            bar.set_linestyle((0, (2, 1.5)))
        axes.legend(loc="upper right", bbox_to_anchor=(1, 0.76))
        for row, (part, held) in enumerate(zip(_PARTS, anchored, strict=True)):
            color = "black" if held else "#777777"
            axes.text(
                8.8 + 0.4,
                0.62 - 0.055 * row,
                f"{part}: " + ("anchored" if held else "free"),
                ha="right",
                color=color,
                fontweight="bold" if held else "normal",
                fontsize=7,
            )
    axes.set_title(title)
    axes.set_xticks([1.5, 6.8], [f"correct\n$Z = {mass:.2f}$", f"incorrect\n$1 - Z = {1 - mass:.2f}$"])
    axes.tick_params(axis="x", length=0)
