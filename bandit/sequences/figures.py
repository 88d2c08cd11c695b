"""The sequence lab's figure: correctness on the prior task against that on the new one."""

from __future__ import annotations

from bandit.engine.two_tasks.summary import label
from bandit.lab import Analysis
from figures.marks import Drawing, Panel, interval, join, marks


def draw(analysis: Analysis) -> dict[str, Drawing]:
    """A curve per method, a point per coefficient, with 95% t-intervals."""
    means, parts = analysis.tables["levels"], []
    for method, points in means[means["role"] == "report"].groupby("method", sort=False):
        ends = interval(points, "new_correct", prefix="x_") | interval(points, "prior_correct")
        text = [f"β = {beta:g}" if beta else "" for beta in points["beta"]]
        at = {"x": points["new_correct"], "y": points["prior_correct"], "text": text}
        parts.append(marks("", "line", method=method, label=label(str(method)), **at, **ends))
    panel = Panel(x="Correctness on the new task", y="Correctness on the prior task")
    caption = (
        "Correctness on both tasks after the shift, a point per coefficient, means over "
        f"{analysis.seeds} seeds with 95% t-intervals."
    )
    return {"sequences_correctness": Drawing(join(parts), {"": panel}, 1, 4, caption, note=analysis.diverged)}
