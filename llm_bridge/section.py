"""The LLM experiment: tables and dynamics of what was trained here, and the paper's own tables beside them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from figures.page import Section, curve, legend, plot, text
from figures.page import table as html_table
from llm_bridge.paper.numbers import paper_tables, read_paper
from llm_bridge.report.figures import main_dynamics
from llm_bridge.report.result_tables import result_tables, sweep
from llm_bridge.report.results import Results, read_results
from llm_bridge.report.tables import HEADERS, Table, method_label

_SWEPT = {"beta": "Coefficient β", "kl_prompts": "Prompts in the KL batch"}
_LINES = {"math_val": "MATH-Val [%]", "chat_val": "Chat-Val reward"}
_SCORES = {"math_avg": "Math Avg. [%]", "chat_val": "Chat-Val reward", "overall": "Overall"}


def section(folder: Path) -> Section:
    """One experiment's results, a plot per model."""
    results = read_results(folder)
    home = folder.parent if folder.name == "results" else folder
    plots, places = _plots(results, home.name)
    methods = [str(method) for method in results.scores["method"].unique()]
    tables = "".join(_shown(table) for table in result_tables(results))
    body = f"{legend(methods, method_label)}{''.join(places)}{tables}{paper()}"
    return Section("llm", "The LLM experiment", body, home.name, plots)


def paper() -> str:
    """The paper's own tables, folded."""
    tables = "".join(_shown(table) for table in paper_tables(read_paper()))
    return f"<details><summary>The paper's own tables</summary>{tables}</details>"


def _shown(table: Table) -> str:
    """A table with bold best and underlined second cells, and its notes; the notes alone where it is empty."""
    notes = "".join(f'<p class="note">{text(note)}</p>' for note in table.notes)
    if table.frame.empty:
        return ""
    cells, marks = table.cells(), table.marks()
    shown = cells.rename(columns=lambda name: HEADERS.get(str(name), str(name)))
    made = html_table(shown.mask(marks.to_numpy() == "best", shown.map("**{}".format)), table.title)
    return made.replace("<td>**", '<td class="best">') + notes


def _plots(results: Results, name: str) -> tuple[dict[str, go.Figure], list[str]]:
    plots, places = {}, []
    for place, (model, rows) in enumerate(main_dynamics(results).groupby("model", sort=False)):
        key = f"{name}-dynamics-{place}"
        plots[key] = _lines(rows, "step", _LINES, "Chat-stage step")
        places.append(plot(key, f"Validation during the chat stage: {model}.", tall=True))
    for parameter, title in _SWEPT.items():
        for place, (model, rows) in enumerate(sweep(results, parameter).groupby("model", sort=False)):
            key = f"{name}-{parameter}-{place}"
            plots[key] = _lines(rows, parameter, _SCORES, title).update_xaxes(type="log")
            places.append(plot(key, f"Scores against {title.lower()}: {model}.", tall=True))
    return plots, places


def _lines(rows: pd.DataFrame, x: str, columns: dict[str, str], title: str) -> go.Figure:
    figure = make_subplots(rows=len(columns), cols=1, shared_xaxes=True, vertical_spacing=0.05)
    for row, (column, axis) in enumerate(columns.items(), start=1):
        for method, points in rows.groupby("method", sort=False):
            ordered, name = points.sort_values(x), str(method)
            hover = f"<b>{method_label(name)}</b><br>%{{x:~g}}: %{{y:.2f}}<extra></extra>"
            line = curve(name, method_label(name), ordered[x], ordered[column], hovertemplate=hover)
            figure.add_trace(line, row=row, col=1)
        figure.update_yaxes(title_text=axis, row=row, col=1)
    figure.update_xaxes(title_text=title, row=len(columns), col=1)
    return figure
