"""Phase diagrams: who wins Overall in each cell, CoKL's lead over its best rival, and what the lead goes with.

Text in a cell is the lead in points of Overall with the half-width of its 95% t-interval, where it fits below it; a
cell whose interval reaches zero is hatched.
"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm, to_rgb
from matplotlib.patches import Patch, Rectangle

from bandit.phase.config import KNOBS, Diagram
from bandit.phase.score import UNDECIDED, explain
from bandit.shift.score import label
from cokl.support.statistics import with_spread
from figures.style import RC, TEXT_WIDTH, Picture, method_style, new_figure

_UNDEFINED = "#e6e6e6"


def draw(diagram: Diagram, cells: pd.DataFrame) -> Picture:
    """`cells` is what `bandit.phase.run.run` returns for this diagram."""
    with mpl.rc_context({**RC, "hatch.linewidth": 0.5}):
        figure, (winners, leads, reason) = new_figure(
            TEXT_WIDTH, 3.1, ncols=3, gridspec_kw={"width_ratios": [1, 1.15, 0.95]}
        )
        _map(winners, diagram, cells, "lead", [_winner_color(cell) for cell in cells.to_dict("records")])
        winners.set_title("Best on the selection seeds")
        won = [method for method in cells["winner"].unique() if method]
        handles = [
            Patch(facecolor=_light(method_style(m).color), edgecolor="black", lw=0.5, label=label(m)) for m in won
        ]
        if (cells["winner"] == "").any():
            handles.append(Patch(facecolor=_UNDEFINED, edgecolor="black", lw=0.5, label=UNDECIDED))
        if any((cells[name].abs() <= cells[f"{name}_half_width"]).any() for name in ("lead", "cokl_lead")):
            unclear = Patch(facecolor="white", hatch="////", edgecolor="#777777", lw=0.5, label="interval reaches 0")
            handles.append(unclear)
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        if cells["cokl_lead"].notna().any():
            limit = max(1.0, float(cells["cokl_lead"].abs().max()))
            colors = mpl.cm.ScalarMappable(TwoSlopeNorm(0, -limit, limit), "RdBu")
            shades = [colors.to_rgba(v) if np.isfinite(v) else _UNDEFINED for v in cells["cokl_lead"]]
            _map(leads, diagram, cells, "cokl_lead", shades)
            figure.colorbar(colors, ax=leads, shrink=0.8, pad=0.02).outline.set_visible(False)
            _scatter(reason, cells)
        else:
            for panel in (leads, reason):
                panel.set_axis_off()
                panel.text(0.5, 0.5, "no cell has a lead", ha="center", va="center", transform=panel.transAxes)
        leads.set_title("CoKL's lead over the best other")
        _letters(winners, leads, reason)
        counts = cells.loc[cells["winner"] != "", "winner"].value_counts()
        tally = ", ".join(f"{label(str(method))} {count}" for method, count in counts.items())
        figure.caption = (
            f"Who wins Overall over {KNOBS[diagram.x].label} and {KNOBS[diagram.y].label} "
            f"({diagram.experiment.mode}), {len(cells)} cells: {tally or 'none decided'}. CoKL's lead over the best "
            f"other method, and the share of GRPO's drift that lies within the correct answers."
        )
    return figure


def _letters(*panels: Axes) -> None:
    """Each panel's letter and title in one line at its left."""
    for letter, panel in zip("abc", panels, strict=True):
        title = panel.get_title()
        panel.set_title("")
        panel.set_title(f"({letter}) {title}", loc="left")


def _map(axes: Axes, diagram: Diagram, cells: pd.DataFrame, column: str, colors: list) -> None:
    """A coloured square per cell with its lead."""
    for cell, color in zip(cells.to_dict("records"), colors, strict=True):
        corner = diagram.x_values.index(cell["x"]), diagram.y_values.index(cell["y"])
        lead, half_width = cell[column], cell[f"{column}_half_width"]
        unclear = np.isfinite(lead) and abs(lead) <= half_width
        axes.add_patch(
            Rectangle(
                corner,
                1,
                1,
                facecolor=color,
                edgecolor="#777777" if unclear else "white",
                hatch="////" if unclear else None,
                lw=0.3,
            )
        )
        if np.isfinite(lead):
            text = with_spread(lead, half_width, 1).replace(" ± ", "\n±")
            box = {"facecolor": color, "edgecolor": "none", "pad": 0.8} if unclear else None
            dark = np.mean(to_rgb(color)) < 0.42
            axes.text(
                corner[0] + 0.5,
                corner[1] + 0.5,
                text,
                ha="center",
                va="center",
                fontsize=6.5,
                color="white" if dark else "black",
                bbox=box,
            )
    axes.grid(visible=False)
    axes.set(xlim=(0, len(diagram.x_values)), ylim=(0, len(diagram.y_values)), xlabel=KNOBS[diagram.x].label)
    axes.set_ylabel(KNOBS[diagram.y].label)
    axes.set_xticks(np.arange(len(diagram.x_values)) + 0.5, [f"{value:g}" for value in diagram.x_values])
    axes.set_yticks(np.arange(len(diagram.y_values)) + 0.5, [f"{value:g}" for value in diagram.y_values])
    axes.tick_params(length=0)


def _scatter(axes: Axes, cells: pd.DataFrame) -> None:
    """CoKL's lead against the conditional drift's share, a point per cell."""
    axes.errorbar(
        cells["correct_share"],
        cells["cokl_lead"],
        cells["cokl_lead_half_width"].where(np.isfinite(cells["cokl_lead_half_width"]), 0),
        fmt=method_style("cokl").marker,
        color=method_style("cokl").color,
        elinewidth=0.6,
    )
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xlabel("GRPO's correct drift /\n(correct + mass drift)")
    axes.set_ylabel("CoKL's lead [points]")
    found = explain(cells).set_index("quantity")
    if "correct_share" in found.index:
        row = found.loc["correct_share"]
        axes.set_title(f"Spearman {row['spearman']:z.2f}")


def _winner_color(cell: dict) -> str | tuple[float, float, float]:
    return _light(method_style(cell["winner"]).color) if cell["winner"] else _UNDEFINED


def _light(color: str) -> tuple[float, float, float]:
    """The method's colour, light enough for black text."""
    red, green, blue = (0.45 + 0.55 * channel for channel in to_rgb(color))
    return red, green, blue
