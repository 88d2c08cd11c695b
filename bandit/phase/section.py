"""A phase diagram: who wins each cell, CoKL's lead over its best rival, and the table behind both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from bandit.phase.config import KNOBS
from bandit.phase.figures import maps
from bandit.phase.score import UNDECIDED, summarize
from bandit.shift.run import COLUMNS
from bandit.shift.score import label
from cokl.support.files import read_json, read_result
from cokl.support.statistics import with_spread
from figures.page import Section, plot
from figures.page import table as html_table
from figures.plotly_renderer import render


def section(folder: Path) -> Section:
    """The maps of one diagram."""
    config = read_json(folder / "config.json", dict)
    x, y = KNOBS[config["x"]].label, KNOBS[config["y"]].label
    cells = summarize(read_result(folder / "phase.parquet", (*COLUMNS, "x", "y")))
    name = f"{folder.parent.name}-{folder.name}"
    drawn = maps(cells, config["x"], config["y"], config["experiment"]["mode"])
    plots = {
        f"{name}-{panel}": render(replace(drawn, panels={panel: drawn.panels[panel]})) for panel in ("winner", "lead")
    }
    body = f"""
<p>Each cell is a task-shift experiment of its own ({config["experiment"]["mode"]}). Leads are points of Overall with
the half-widths of their 95% t-intervals over seeds; <b>?</b> marks a lead whose interval reaches zero.</p>
<div class="pair">
{plot(f"{name}-winner", f"Who wins Overall, over {x} and {y}, and by how much over the next.")}
{plot(f"{name}-lead", "CoKL's lead over the best method that is no variant of it: blue where it leads, red where not.")}
</div>
{html_table(_cells(cells, x, y))}
"""
    return Section("phase", "Phase maps", body, name, plots)


def _lead(cell: dict, column: str) -> str:
    """ "+1.2 ± 0.3", with a question mark where the interval reaches zero; empty where there is no lead."""
    lead, half_width = cell[column], cell[f"{column}_half_width"]
    if not np.isfinite(lead):
        return ""
    return f"{with_spread(lead, half_width, 1)}{'' if abs(lead) > half_width else ' ?'}"


def _cells(cells: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    rows = cells.to_dict("records")
    return pd.DataFrame(
        {
            x: [f"{cell['x']:g}" for cell in rows],
            y: [f"{cell['y']:g}" for cell in rows],
            "base correctness": [f"{cell['base_correct']:.3f}" for cell in rows],
            "winner": [label(cell["winner"]) if cell["winner"] else UNDECIDED for cell in rows],
            "its lead": [_lead(cell, "lead") for cell in rows],
            "CoKL's lead": [_lead(cell, "cokl_lead") for cell in rows],
            "over": [label(cell["rival"]) if cell["rival"] else "" for cell in rows],
        }
    )
