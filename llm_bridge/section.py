"""The LLM experiment: tables and dynamics of what was trained here, and the paper's own tables beside them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import plotly.graph_objects as go

from figures.page import Section, legend, plot, text
from figures.page import table as html_table
from figures.plotly_renderer import render
from llm_bridge.paper.numbers import paper_tables, read_paper
from llm_bridge.report.figures import drawings
from llm_bridge.report.result_tables import result_tables
from llm_bridge.report.results import Results, read_results
from llm_bridge.report.tables import HEADERS, Table, method_label

_CAPTIONS = {
    "llm_training_dynamics": "Validation during the chat stage",
    "llm_beta": "Scores against coefficient β",
    "llm_kl_batch": "Scores against prompts in the KL batch",
}


def section(folder: Path) -> Section:
    """One experiment's results, a plot per model."""
    results = read_results(folder)
    home = folder.parent if folder.name == "results" else folder
    plots, blocks = _plots(results, home.name)
    methods = [str(method) for method in results.scores["method"].unique()]
    tables = "".join(_shown(table) for table in result_tables(results))
    body = f"{legend(methods, method_label)}{''.join(blocks)}{tables}{paper()}"
    return Section("llm", "The LLM experiment", body, home.name, plots)


def paper() -> str:
    """The paper's own tables, folded."""
    tables = "".join(_shown(table) for table in paper_tables(read_paper()))
    return f"<details><summary>The paper's own tables</summary>{tables}</details>"


def _shown(table: Table) -> str:
    """A table with bold best cells, and its notes; nothing where it is empty."""
    if table.frame.empty:
        return ""
    cells, marks = table.cells(), table.marks()
    shown = cells.rename(columns=lambda name: HEADERS.get(str(name), str(name)))
    made = html_table(shown.mask(marks.to_numpy() == "best", shown.map("**{}".format)), table.title)
    notes = "".join(f'<p class="note">{text(note)}</p>' for note in table.notes)
    return made.replace("<td>**", '<td class="best">') + notes


def _plots(results: Results, name: str) -> tuple[dict[str, go.Figure], list[str]]:
    plots, blocks = {}, []
    for kind, drawing in drawings(results).items():
        panels = list(drawing.panels.items())
        for number, start in enumerate(range(0, len(panels), drawing.columns)):
            key, ours = f"{name}-{kind}-{number}", dict(panels[start : start + drawing.columns])
            model = next(iter(ours)).rsplit(" ", 1)[0]
            plots[key] = render(replace(drawing, panels=ours, shared={"sharex": True}))
            blocks.append(plot(key, f"{_CAPTIONS[kind]}: {model}.", tall=True))
    return plots, blocks
