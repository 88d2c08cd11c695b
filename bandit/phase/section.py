"""A phase diagram: who wins each cell, CoKL's lead over its best rival, and the table behind both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from bandit.phase.config import KNOBS
from bandit.phase.score import UNDECIDED, summarize
from bandit.shift.run import COLUMNS
from bandit.shift.score import label
from cokl.support.files import read_json, read_result
from cokl.support.statistics import with_spread
from figures.page import Section, color, plot
from figures.page import table as html_table


def section(folder: Path) -> Section:
    """The maps of one diagram."""
    config = read_json(folder / "config.json", dict)
    x, y = KNOBS[config["x"]].label, KNOBS[config["y"]].label
    cells = summarize(read_result(folder / "phase.parquet", (*COLUMNS, "x", "y")))
    name = f"{folder.parent.name}-{folder.name}"
    plots = {f"{name}-winner": _winners(cells, x, y), f"{name}-lead": _leads(cells, x, y)}
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


def _winners(cells: pd.DataFrame, x: str, y: str) -> go.Figure:
    won = list(dict.fromkeys(cells["winner"]))
    shades = [color(method) if method else "#999999" for method in won]
    numbers = cells.assign(number=cells["winner"].map(won.index))
    bounds = np.linspace(0, 1, len(won) + 1)
    scale = [[edge, shade] for place, shade in enumerate(shades) for edge in bounds[place : place + 2].tolist()]
    said = cells.assign(
        said=[
            (label(cell["winner"]) if cell["winner"] else UNDECIDED) + "<br>" + _lead(cell, "lead")
            for cell in cells.to_dict("records")
        ]
    )
    return _map(numbers, "number", said, x, y, colorscale=scale, zmin=-0.5, zmax=len(won) - 0.5, showscale=False,
                opacity=0.55)  # fmt: skip


def _leads(cells: pd.DataFrame, x: str, y: str) -> go.Figure:
    limit = max(1.0, float(cells["cokl_lead"].abs().max()) if cells["cokl_lead"].notna().any() else 1.0)
    said = cells.assign(said=[_lead(cell, "cokl_lead") for cell in cells.to_dict("records")])
    return _map(cells, "cokl_lead", said, x, y, colorscale="RdBu", zmin=-limit, zmax=limit, showscale=False)


def _map(cells: pd.DataFrame, column: str, said: pd.DataFrame, x: str, y: str, **look: object) -> go.Figure:
    """A coloured square per cell with words in it."""
    values, words = (frame.pivot(index="y", columns="x", values=of) for frame, of in ((cells, column), (said, "said")))
    figure = go.Figure(
        go.Heatmap(
            x=[f"{value:g}" for value in values.columns],
            y=[f"{value:g}" for value in values.index],
            z=values.to_numpy().tolist(),
            text=words.to_numpy().tolist(),
            texttemplate="%{text}",
            hovertemplate=f"{x} %{{x}}<br>{y} %{{y}}<br>%{{text}}<extra></extra>",
            xgap=2,
            ygap=2,
            **look,
        )
    )
    figure.update_xaxes(title_text=x, type="category", showgrid=False)
    figure.update_yaxes(title_text=y, type="category", showgrid=False)
    return figure


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
