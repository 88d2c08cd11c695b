"""The LLM experiment: tables and dynamics of what was trained here, and the paper's own tables beside them."""

from __future__ import annotations

from pathlib import Path

from cokl_cli.report.html import Section, chart, text
from cokl_cli.report.html import table as html_table
from llm_bridge.experiment.config import BASE
from llm_bridge.experiment.workloads import CHAT
from llm_bridge.paper.numbers import paper_tables
from llm_bridge.report.figures import dynamics
from llm_bridge.report.results import read_results
from llm_bridge.report.tables import HEADERS, TITLES, Table, method_label, result_tables


def section(folder: Path) -> Section:
    """One experiment's results: its pictures and tables."""
    results = read_results(folder)
    pictures = chart(dynamics(results), "llm_training_dynamics") if len(results.dynamics) else ""
    tables = "".join(_shown(table) for table in result_tables(results))
    return Section("llm", "The LLM experiment", f"{pictures}{tables}{paper()}")


def answer(folder: Path) -> str:
    """What each method's main setting ends with, in one run: its first set, and the chat set if there is one."""
    results = read_results(folder)
    columns = [results.math_columns[0], *(name for name in results.scores if name == CHAT)]
    main = results.scores[(results.scores["main"] == 1) & (results.scores["method"] != BASE)]
    told = (
        f"{method_label(row['method'])} {' and '.join(f'{row[name]:.1f}' for name in columns)}"
        for row in main.to_dict("records")
    )
    names = " and ".join(HEADERS.get(name, name) for name in columns)
    return f"{names}, in one run: {'; '.join(told) or 'no score of a main setting'}."


def paper() -> str:
    """The paper's own tables, folded."""
    tables = "".join(_shown(table) for table in paper_tables())
    return f"<details><summary>The paper's own tables</summary>{tables}</details>"


def _shown(table: Table) -> str:
    """A table with bold best cells, and its notes; nothing where it is empty."""
    if table.frame.empty:
        return ""
    shown = table.cells().rename(columns=lambda name: HEADERS.get(str(name), str(name)))
    notes = "".join(f'<p class="note">{text(note)}</p>' for note in table.notes)
    return html_table(shown, TITLES[table.name], table.marks() == "best") + notes
