"""Figure 3: coverage@64 (left) and conditional KL (right) during training at matched final correctness."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from bandit.engine.tables import coverage_column, method_label
from bandit.sweep.score import matched_rows
from figures.style import RC, TEXT_WIDTH, method_style, new_figure, panel_letters


def draw(table: pd.DataFrame) -> Figure:
    """`table` is a sweep table. Lines are means over seeds, bands one standard deviation."""
    coverage = coverage_column(table)
    rows = pd.concat([table[table["method"] == "none"], matched_rows(table)])
    with mpl.rc_context(RC):
        figure, (left, right) = new_figure(TEXT_WIDTH, 2.75, ncols=2)
        for method in rows["method"].unique():
            run = rows[rows["method"] == method]
            beta = run["beta"].iloc[0]
            style = method_style(method)
            name = method_label(method)
            label = name if method == "none" else rf"{name}, $\beta={beta:g}$"
            for axes, column in ((left, coverage), (right, "conditional_kl")):
                curve = run.groupby("step")[column].agg(["mean", "std"])
                axes.plot(curve.index, curve["mean"], label=label, markevery=2, **style.line())
                low, high = curve["mean"] - curve["std"], curve["mean"] + curve["std"]
                axes.fill_between(curve.index, low, high, color=style.color, alpha=0.15, linewidth=0)
        left.set_ylabel(f"Coverage@{coverage.rsplit('_', 1)[1]}")
        right.set_ylabel(r"$D_{\mathrm{KL}}(\pi_{\mathrm{ref}}^{+}\,\Vert\,\pi_\theta^{+})$ [nats]")
        for axes in (left, right):
            axes.set_xlabel("Training step")
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=0)
        panel_letters(left, right)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure
