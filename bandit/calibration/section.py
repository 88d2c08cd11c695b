"""The search for the paper's pattern on the page."""

from __future__ import annotations

from pathlib import Path

from bandit.calibration.config import CalibrationConfig
from bandit.calibration.report import LEGEND, answer, rows
from bandit.calibration.run import lab_of
from bandit.calibration.score import summarize
from cokl.support.files import read_json, read_result
from cokl.support.options import from_json
from figures.page import Section, table, text


def section(folder: Path) -> Section:
    """The answer, and a row per setting and share."""
    config = from_json(CalibrationConfig, read_json(folder / "config.json", dict))
    summary = summarize(read_result(folder / "calibration.parquet", (*lab_of(config).columns, "cell")), config)
    body = f"<p>{text(answer(summary, config.seeds))}</p><p>{text(LEGEND)}</p>{table(rows(summary))}"
    return Section("calibration", "How much of term 2, and does it pay", body, folder.name)
