"""Figure 3: coverage@64 (left) and conditional KL (right) during training at matched final correctness."""

from __future__ import annotations

import pandas as pd

from bandit.engine.tables import coverage_column, method_label
from bandit.sweep.figures.means import means, panels
from bandit.sweep.score import MATCHED_CORRECTNESS, diverged_note, matched_rows, require_sweep, without_diverged_runs
from figures.marks import Drawing, interval, join, marks
from figures.matplotlib_renderer import render
from figures.style import SEED_LINES, Picture


def draw(table: pd.DataFrame) -> Picture:
    """`table` is a sweep table. Lines are means over seeds, bands one standard deviation; few seeds are thin lines.

    Raises InputError for another table.
    """
    return render(drawing(require_sweep(table)))


def drawing(table: pd.DataFrame) -> Drawing:
    """A line per method at its matched coefficient over the training steps."""
    shown = panels(table, x="Training step", x_limits=(0, None), y_limits=(0, None))
    note, table = diverged_note(table), without_diverged_runs(table)
    rows = pd.concat([table[table["method"] == "none"], matched_rows(table)])
    few, parts = table["seed"].nunique() < SEED_LINES, []
    for column in shown:
        for method in rows["method"].unique():
            run = rows[rows["method"] == method].sort_values("step")
            name = method_label(method)
            label = name if method == "none" else rf"{name}, $\beta={run['beta'].iloc[0]:g}$"
            mean = means(run)
            ends = {} if few else interval(mean, column, "_std")
            parts.append(marks(column, "band", label=label, method=method, x=mean["step"], y=mean[column], **ends))
            if few:
                parts.append(marks(column, "seed", method=method, x=run["step"], y=run[column], run=run["seed"]))
    return Drawing(join(parts), shown, 2, 2.75, _caption(rows, few), legend_columns=3, letters=True, note=note)


def _caption(rows: pd.DataFrame, few: bool) -> str:
    coverage = coverage_column(rows)
    last = rows[rows["step"] == rows["step"].max()].groupby("method", sort=False)[[coverage, "conditional_kl"]].mean()
    ends = "; ".join(
        f"{method_label(str(method))} {row.iloc[0]:.3f} and {row.iloc[1]:.2f} nats" for method, row in last.iterrows()
    )
    spread = "thin lines single seeds" if few else "bands one standard deviation"
    return (
        f"{coverage.replace('_at_', '@').capitalize()} (a) and conditional KL (b) during training, each method at the "
        f"coefficient whose final correctness is closest to {MATCHED_CORRECTNESS}: means over {rows['seed'].nunique()} "
        f"seeds, {spread}. At the end: {ends}."
    )
