"""Figure 2: correctness against coverage@64 (left) and against conditional KL (right), a curve per method over beta."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bandit.engine.tables import coverage_column, coverage_label, method_label
from bandit.sweep.score import diverged_note, final_rows
from figures.style import RC, TEXT_WIDTH, Picture, method_style, new_figure, note_diverged, panel_letters


def draw(table: pd.DataFrame) -> Picture:
    """`table` is a sweep table. Points are means over seeds, bars standard deviations in both directions."""
    coverage = coverage_column(table)
    with mpl.rc_context(RC):
        figure, (left, right) = new_figure(TEXT_WIDTH, 2.75, ncols=2)
        _panel(left, table, coverage)
        _panel(right, table, "conditional_kl")
        left.set_ylabel(coverage_label(coverage))
        right.set_ylabel(r"$D_{\mathrm{KL}}(\pi_{\mathrm{ref}}^{+}\,\Vert\,\pi_\theta^{+})$ [nats]")
        for axes in (left, right):
            axes.set_xlabel(r"Correctness $P_{\mathrm{corr}}$ (axis stretched towards 1)")
            axes.set_xscale("function", functions=(_stretch, _unstretch))
            axes.margins(x=0.02)
            axes.set_xticks(_ticks(*axes.get_xlim()))
            axes.minorticks_off()
        panel_letters(left, right)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        note_diverged(figure, diverged_note(table))
        figure.caption = _caption(table, coverage)
    return figure


def _caption(table: pd.DataFrame, coverage: str) -> str:
    final = final_rows(table)
    points = final.groupby(["method", "beta"])["p_correct"].mean()
    return (
        f"Correctness against {coverage.replace('_at_', '@')} (a) and against conditional KL (b) after "
        f"{final['step'].max()} steps: {len(points)} points, a coefficient each, means over {final['seed'].nunique()} "
        f"seeds, bars one standard deviation. Correctness goes from {points.min():.3f} to {points.max():.3f}."
    )


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers within the axis, close enough to label at least two."""
    chosen = [tick for tick in (0.1, 0.5, 0.7, 0.8, 0.9, 0.94, 0.96, 0.98, 0.99) if low <= tick <= high]
    return chosen if len(chosen) > 1 else [round(float(tick), 4) for tick in np.linspace(low, high, 4)]


def _stretch(correctness: np.ndarray) -> np.ndarray:
    return -np.log(np.clip(1 - correctness, 1e-6, None))


def _unstretch(position: np.ndarray) -> np.ndarray:
    return 1 - np.exp(-position)


def _panel(axes: Axes, table: pd.DataFrame, column: str) -> None:
    final = final_rows(table)
    for method, runs in final.groupby("method", sort=False):
        points = runs.groupby("beta")[["p_correct", column]].agg(["mean", "std"])
        x, y = points["p_correct"], points[column]
        style = method_style(str(method))
        axes.plot(
            x["mean"], y["mean"], label=method_label(str(method)), zorder=5 if method == "none" else 3, **style.line()
        )
        if len(points) == 1:
            axes.lines[-1].set_linestyle("none")
        axes.errorbar(
            x["mean"],
            y["mean"],
            xerr=x["std"],
            yerr=y["std"],
            fmt="none",
            ecolor=style.color,
            elinewidth=0.6,
            alpha=0.6,
        )
    reference = table[table["method"] == "reference"][["p_correct", column]].mean()
    axes.plot(*reference, linestyle="none", label=method_label("reference"), marker="*", color="black", markersize=7)
