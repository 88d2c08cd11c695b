"""The plasticity lab's picture: correctness after phase 1 against plasticity."""

from __future__ import annotations

import pandas as pd

from bandit.engine.tables import method_label as label
from bandit.lab import Analysis
from bandit.plasticity.config import PlasticityConfig
from figures.marks import Drawing, Panel, interval, join, marks
from figures.style import SEED_LINES, Style

_TICKS = (0.1, 0.5, 0.8, 0.9, 0.96)
_STYLES = {"match": Style("#999999", dashes=(2, 2), order=1)}


def draw(analysis: Analysis) -> dict[str, Drawing]:
    """The trade-off."""
    means, config = analysis.tables["coefficients"], analysis.scored.config
    return {"plasticity_tradeoff": tradeoff(means, config, analysis.seeds, analysis.diverged)}


def tradeoff(means: pd.DataFrame, config: PlasticityConfig, seeds: int, note: str = "") -> Drawing:
    """A point per coefficient, for phase 2 in groups after the primary change.

    means: the table of coefficients, over so many seeds; few have no intervals.
    """
    target, few = config.matched_correctness, seeds < SEED_LINES
    low, high = means["p_correct"].min(), means["p_correct"].max()
    panel = Panel(
        x="Correctness after phase 1", y=f"Plasticity after {config.primary_change}", scale="stretched",
        y_limits=(0, 1), x_ticks=[tick for tick in _TICKS if low <= tick <= high],
    )  # fmt: skip
    parts = [marks("", "seed", style="match", x=[target, target], y=[0, 1])]
    for method, points in means.sort_values("beta").groupby("method", sort=False):
        ends = {} if few else interval(points, "plasticity")
        own = {"label": label(str(method)), "method": method, "text": points["beta"].map("β = {:g}".format)}
        kind = "point" if len(points) == 1 else "line"
        parts.append(marks("", kind, **own, x=points["p_correct"], y=points["plasticity"], **ends))
    caption = (
        f"Correctness after phase 1 against plasticity, the mean new reward over {config.new_steps} steps after "
        f"{config.primary_change} in groups: a point per coefficient, means over {seeds} seeds"
        f"{'' if few else ', bars 95% t-intervals'}; lines join neighbouring coefficients; dashed, the matched "
        "correctness."
    )
    return Drawing(join(parts), {"": panel}, 1, 2.9, caption, _STYLES, legend_columns=5, note=note)
