"""Figure 3: coverage@64 (left) and conditional KL (right) during training at matched final correctness."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd

from bandit.engine.tables import coverage_column, coverage_label, method_label
from bandit.sweep.score import MATCHED_CORRECTNESS, diverged_note, matched_rows, settled
from figures.style import RC, SEED_LINES, TEXT_WIDTH, Picture, method_style, new_figure, note_diverged, panel_letters


def draw(table: pd.DataFrame) -> Picture:
    """`table` is a sweep table. Lines are means over seeds, bands one standard deviation; few seeds are thin lines."""
    coverage = coverage_column(table)
    note, table = diverged_note(table), settled(table)
    rows = pd.concat([table[table["method"] == "none"], matched_rows(table)])
    few = table["seed"].nunique() < SEED_LINES
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
                if few:
                    for _, seed in run.groupby("seed"):
                        axes.plot(seed["step"], seed[column], color=style.color, linewidth=0.6, alpha=0.7)
                else:
                    low, high = curve["mean"] - curve["std"], curve["mean"] + curve["std"]
                    axes.fill_between(curve.index, low, high, color=style.color, alpha=0.15, linewidth=0)
        left.set_ylabel(coverage_label(coverage))
        right.set_ylabel(r"$D_{\mathrm{KL}}(\pi_{\mathrm{ref}}^{+}\,\Vert\,\pi_\theta^{+})$ [nats]")
        for axes in (left, right):
            axes.set_xlabel("Training step")
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=0)
        panel_letters(left, right)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        note_diverged(figure, note)
        figure.caption = _caption(rows, coverage, few)
    return figure


def _caption(rows: pd.DataFrame, coverage: str, few: bool) -> str:
    last = rows[rows["step"] == rows["step"].max()].groupby("method", sort=False)[[coverage, "conditional_kl"]].mean()
    ends = "; ".join(
        f"{method_label(str(m))} {row.iloc[0]:.3f} and {row.iloc[1]:.2f} nats" for m, row in last.iterrows()
    )
    spread = "thin lines single seeds" if few else "bands one standard deviation"
    return (
        f"{coverage.replace('_at_', '@').capitalize()} (a) and conditional KL (b) during training, each method at the "
        f"coefficient whose final correctness is closest to {MATCHED_CORRECTNESS}: means over {rows['seed'].nunique()} "
        f"seeds, {spread}. At the end: {ends}."
    )
