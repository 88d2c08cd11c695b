"""A map of the structure of correctness on the page."""

from __future__ import annotations

from pathlib import Path

from bandit.structure.config import StructureConfig
from bandit.structure.figures import drawing
from bandit.structure.report import LEGEND, rows
from bandit.structure.run import lab_of
from bandit.structure.score import summarize
from cokl.support.files import read_json, read_result
from cokl.support.options import from_json
from figures.page import Section, plot, table, text
from figures.plotly_renderer import render


def section(folder: Path) -> Section:
    """A point and a row per setting."""
    config = from_json(StructureConfig, read_json(folder / "config.json", dict))
    summary = summarize(read_result(folder / "structure.parquet", (*lab_of(config).columns, "cell")), config)
    drawn = drawing({"": summary})
    body = f"{plot(folder.name, drawn.caption, tall=True)}<p>{text(LEGEND)}</p>{table(rows(summary))}"
    return Section("structure", "Where retention is equal", body, folder.name, {folder.name: render(drawn)})
