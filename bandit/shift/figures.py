"""The task-shift lab's figure: retention against adaptation over the coefficients.

Each method has its own panel, with the others in grey behind it. Points are means over the reported seeds, bars 95%
t-intervals.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from bandit.engine.two_tasks.summary import ANCHORS, label
from bandit.lab import Analysis
from cokl.support.statistics import with_spread
from figures.marks import Drawing, Panel, interval, join, marks
from figures.style import Style

_COLUMNS = 5
STYLES = {
    "others": Style("#c9c9c9", width=0.7, order=1),
    "best": Style("black", "*", size=8, fill="white", width=0, order=6),
    "anchor": Style("black", "+", size=5, width=0),
    "first_marked": Style("#444444", "o"),
}


def draw(analysis: Analysis) -> dict[str, Drawing]:
    """The trade-off of each mode."""
    return {
        f"shift_tradeoff_{mode}": replace(tradeoff(rows), note=analysis.diverged)
        for mode, rows in analysis.tables["beta_search"].groupby("mode", sort=False)
    }


def tradeoff(search: pd.DataFrame) -> Drawing:
    """A point per coefficient of a search; a star marks the coefficient chosen as best."""
    search = search[search["role"] == "report"]
    regularized = search[~search["method"].isin(ANCHORS)]
    lines = {}
    for method, points in regularized.groupby("method", sort=False):
        ends = interval(points, "adaptation", prefix="x_") | interval(points, "retention")
        text = [f"β = {b:g}, Overall {o:.1f}" for b, o in zip(points["beta"], points["overall"], strict=True)]
        place = {"x": points["adaptation"], "y": points["retention"]}
        lines[str(method)] = marks("", "line", method=method, text=text, **place, **ends)
    behind = pd.concat(lines.values()).assign(style="others", kind="seed")
    anchor = marks("", "point", style="anchor", x=[0, 100], y=[100, 0])
    parts = []
    for method, own in lines.items():
        best = regularized[regularized["best"] & (regularized["method"] == method)]
        star = marks("", "point", method=method, style="best", x=best["adaptation"], y=best["retention"])
        parts.append(pd.concat([part for part in (behind, own, star, anchor) if len(part)]).assign(panel=method))
    chosen = regularized[regularized["best"]].sort_values("overall", ascending=False)
    listed = ", ".join(
        f"{label(row['method'])} {with_spread(row['overall'], row['overall_half_width'], 1)}"
        for row in chosen.to_dict("records")
    )
    legend = {
        r"the panel's method, a point per $\beta$": "first_marked",
        "the other methods": "others",
        **({r"best $\beta$ (selection seeds)": "best"} if len(chosen) else {}),
        "Base (0, 100), GRPO w/o KL (100, 0)": "anchor",
    }
    modes = " and ".join(map(str, search["mode"].unique()))
    caption = f"Retention against adaptation over β ({modes}), a panel per method." + (
        f" Overall at the chosen coefficients: {listed}." if listed else ""
    )
    panels = {method: Panel(label(method), "Adaptation", "Retention") for method in lines}
    shown = min(_COLUMNS, len(panels))
    height = 0.75 + 1.45 * -(-len(panels) // shown)
    shared = {"sharex": True, "sharey": True}
    return Drawing(join(parts), panels, shown, height, caption, STYLES, legend, 2, shared=shared)
