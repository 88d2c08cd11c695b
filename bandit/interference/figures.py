"""The deficit that the theorem predicts beside the measured one, and the prior task over training."""

from __future__ import annotations

from typing import Any

import pandas as pd

from bandit.interference.report import deficits
from bandit.interference.run import COKL, REPLAY
from cokl.support.statistics import summarize, with_spread
from figures.marks import Drawing, Panel, interval, join, marks
from figures.matplotlib_renderer import render
from figures.style import Picture, Style, method_style

STYLES = {
    "shift-exact": Style("#1f4e8c", "o"),
    "shift-sampled": Style("#1f4e8c", "o", fill="white"),
    "sequences-exact": Style("#b5651d", "s"),
    "equal": Style("#999999", dashes=(3.7, 1.6)),
    "prediction": Style("black", dashes=(1.5, 1.5)),
}


def draw_all(table: pd.DataFrame, config: Any) -> dict[str, Picture]:
    """The one figure."""
    return {"interference": render(drawing(table))}


def drawing(table: pd.DataFrame) -> Drawing:
    """A point per setting and seed: predicted from CoKL's run against measured; and each setting over training."""
    each_seed = deficits(table)
    settings = list(each_seed["setting"].unique())
    panels = {"deficit": Panel(x="Measured: replay minus CoKL", y="Predicted from CoKL's run")}
    most = float(each_seed[["measured", "from_cokl"]].max().max())
    parts = [marks("deficit", "line", style="equal", label="equal", x=[0.0, most], y=[0.0, most])]
    for setting, rows in each_seed.groupby("setting", sort=False):
        columns = {"x": rows["measured"], "y": rows["from_cokl"], "run": range(len(rows))}
        parts.append(marks("deficit", "point", label=setting, style=setting, **columns))
    for setting in settings:
        panels[setting] = Panel(title=setting, x="Step", y="Prior task", y_limits=(0, 1))
        means = summarize(table[table["setting"] == setting], ["method", "step"], ["correct", "predicted"])
        for method, style, column, label in (
            (COKL, COKL, "correct", "CoKL"),
            (REPLAY, REPLAY, "correct", "replay"),
            (COKL, "prediction", "predicted", "replay, predicted from CoKL's run"),
        ):
            rows = means[means["method"] == method]
            ends = interval(rows, column) if label != "replay, predicted from CoKL's run" else {}
            parts.append(marks(setting, "band", label=label, style=style, x=rows["step"], y=rows[column], **ends))
    means = summarize(each_seed, ["setting"], ["measured", "from_cokl"])
    caption_values = ", ".join(
        f"{row['setting']} {with_spread(row['from_cokl'], row['from_cokl_half_width'], 3)} predicted, "
        f"{with_spread(row['measured'], row['measured_half_width'], 3)} measured"
        for row in means.to_dict("records")
    )
    caption = (
        "How far CoKL ends behind replay on the prior task, in correctness: predicted from CoKL's own training by the "
        f"direction that replay adds, beside the measured one; points are seeds, bands 95% t-intervals. "
        f"{caption_values}."
    )
    styles = {**STYLES, COKL: method_style(COKL), REPLAY: method_style(REPLAY)}
    return Drawing(join(parts), panels, len(panels), 2.6, caption, styles, legend_columns=4)
