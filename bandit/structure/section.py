"""A map of the structure of correctness on the page."""

from __future__ import annotations

from pathlib import Path

from bandit.structure.config import StructureConfig
from bandit.structure.report import LEGEND, rows
from bandit.structure.run import lab_of
from bandit.structure.score import summarize
from cokl.support.files import read_json, read_result
from cokl.support.options import from_json
from figures.page import Section, table, text


def section(folder: Path) -> Section:
    """A row per setting."""
    config = from_json(StructureConfig, read_json(folder / "config.json", dict))
    summary = summarize(read_result(folder / "structure.parquet", (*lab_of(config).columns, "cell")), config)
    return Section("structure", "Where retention is equal", f"<p>{text(LEGEND)}</p>{table(rows(summary))}", folder.name)
