"""Figure 2: correctness against coverage@64 (left) and against conditional KL (right), a curve per method over beta."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from bandit.engine.tables import coverage_column, method_label
from bandit.sweep.figures.means import means, panels
from bandit.sweep.score import diverged_note, final_rows, require_sweep
from figures.marks import Drawing, interval, join, marks
from figures.matplotlib_renderer import render
from figures.style import Picture, method_style


def draw(table: pd.DataFrame) -> Picture:
    """`table` is a sweep table. Points are means over seeds, bars standard deviations in both directions.

    Raises InputError for another table.
    """
    return render(drawing(require_sweep(table)))


def drawing(table: pd.DataFrame) -> Drawing:
    """A point per method and beta at the last step, and the reference's."""
    shown = panels(table, x=r"Correctness $P_{\mathrm{corr}}$ (axis stretched towards 1)", scale="stretched")
    final = means(final_rows(table)).sort_values("beta")
    reference = means(table[table["method"] == "reference"])
    parts = []
    for column in shown:
        for method in final_rows(table)["method"].unique():
            points = final[final["method"] == method]
            ends = interval(points, "p_correct", "_std", "x_") | interval(points, column, "_std")
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
    }
    return Drawing(join(parts), shown, 2, 2.75, _caption(table), styles, letters=True, note=diverged_note(table))


def _caption(table: pd.DataFrame) -> str:
    final = final_rows(table)
    points = final.groupby(["method", "beta"])["p_correct"].mean()
    return (
        f"Correctness against {coverage_column(table).replace('_at_', '@')} (a) and against conditional KL (b) after "
        f"{final['step'].max()} steps: {len(points)} points, a coefficient each, means over {final['seed'].nunique()} "
        f"seeds, bars one standard deviation. Correctness goes from {points.min():.3f} to {points.max():.3f}."
    )
