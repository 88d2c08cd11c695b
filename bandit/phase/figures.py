"""Phase diagrams: who wins Overall in each cell, CoKL's lead over its best rival, and what the lead goes with.

Text in a cell is the lead in points of Overall with the half-width of its 95% t-interval, where it fits below it; a
cell whose interval reaches zero is hatched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex, to_rgb

from bandit.phase.config import KNOBS, MapsConfig
from bandit.phase.score import UNDECIDED, explain
from bandit.shift.score import label
from cokl.support.statistics import with_spread
from figures.marks import Drawing, Panel, interval, join, marks
from figures.matplotlib_renderer import UNDEFINED, render
from figures.style import Picture, Style, method_style


def draw_all(cells: Mapping[str, pd.DataFrame], config: MapsConfig) -> dict[str, Picture]:
    """Every map of `cells`, which is what `bandit.phase.run.run` returns."""
    return {
        f"phase_{one.name}": render(maps(cells[one.name], one.x, one.y, one.experiment.mode))
        for one in config.diagrams()
    }


def maps(cells: pd.DataFrame, x: str, y: str, mode: str) -> Drawing:
    """`cells` is what `bandit.phase.score.summarize` returns for the map of the knobs x and y."""
    knobs, columns = (KNOBS[x].label, KNOBS[y].label), tuple(sorted(cells["x"].unique()))
    axes = Panel(x=knobs[0], y=knobs[1], x_values=columns, y_values=tuple(sorted(cells["y"].unique())))
    largest = float(cells["cokl_lead"].abs().max())
    reaches = [(cells[name].abs() <= cells[f"{name}_half_width"]).any() for name in ("lead", "cokl_lead")]
    hatching = "interval reaches 0" if any(reaches) else ""
    panels = {
        "winner": replace(axes, title="(a) Chosen by selection: reported lead", hatching=hatching),
        "lead": replace(
            axes, title="(b) CoKL's lead over the best other", shades=max(1.0, largest), shaded="points of Overall"
        )
        if np.isfinite(largest)
        else replace(axes, title="(b) no cell has a lead"),
        "reason": _reason(cells),
    }
    parts = [
        _cells(rows, "winner", "lead", str(winner), label(str(winner)) if winner else UNDECIDED)
        for winner, rows in cells.groupby("winner", sort=False)
    ]
    parts.append(_cells(cells, "lead", "cokl_lead", "", ""))
    ends = interval(cells, "cokl_lead")
    parts.append(marks("reason", "hline", style="zero", y=0.0))
    parts.append(marks("reason", "point", method="cokl", x=cells["correct_share"], y=cells["cokl_lead"], **ends))
    counts = cells.loc[cells["winner"] != "", "winner"].value_counts()
    tally = ", ".join(f"{label(str(method))} {count}" for method, count in counts.items())
    caption = (
        f"Who wins Overall over {knobs[0]} and {knobs[1]} "
        f"({mode}), {len(cells)} cells: {tally or 'none decided'}; chosen on the selection seeds, so that its lead on "
        f"the reported ones can be negative. CoKL's lead over the best "
        f"other method, and the share of GRPO's drift that lies within the correct answers."
    )
    styles = {f"{winner} light": _light(winner) for winner in cells["winner"].unique() if winner}
    styles |= {" light": Style(UNDEFINED), "zero": Style("black", width=0.6)}
    return Drawing(join(parts), panels, 3, 3.1, caption, styles, widths=(1, 1.15, 0.95))


def _cells(cells: pd.DataFrame, panel: str, column: str, winner: str, name: str) -> pd.DataFrame:
    """Squares with their lead; those whose interval reaches zero are hatched."""
    lead, half = cells[column], cells[f"{column}_half_width"]
    text = [
        with_spread(*pair, 1).replace(" ± ", "\n±") if np.isfinite(pair[0]) else ""
        for pair in zip(lead, half, strict=True)
    ]
    return marks(
        panel, "cell", label=name, method=winner, style=f"{winner} light", x=cells["x"], y=cells["y"], value=lead,
        low=lead - half, high=lead + half, text=text, hatched=np.isfinite(lead) & (lead.abs() <= half),
    )  # fmt: skip


def _reason(cells: pd.DataFrame) -> Panel:
    """CoKL's lead against the conditional drift's share, a point per cell."""
    explained = explain(cells).set_index("quantity")
    known = "correct_share" in explained.index
    title = f"(c) Spearman {float(explained['spearman']['correct_share']):z.2f}" if known else "(c)"
    return Panel(title, "GRPO's correct drift /\n(correct + mass drift)", "CoKL's lead [points]")


def _light(method: str) -> Style:
    """The method's colour, light enough for black text."""
    red, green, blue = (0.45 + 0.55 * channel for channel in to_rgb(method_style(method).color))
    return Style(to_hex((red, green, blue)))
