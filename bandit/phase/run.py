"""Training what is missing of the phase diagrams, and writing a table and a page for each."""

from __future__ import annotations

import dataclasses

import pandas as pd

from bandit.engine.divergence import divergence_note
from bandit.engine.two_tasks.grid import Cell, train_grid
from bandit.engine.two_tasks.plan import RUN
from bandit.phase.config import Diagram
from bandit.phase.report import page
from bandit.phase.score import summarize
from bandit.shift.run import SHIFT
from cokl.support.experiment import HERE, Execution
from cokl.support.files import write_text
from cokl.support.statistics import csv_text


def run(diagrams: list[Diagram], execution: Execution = HERE, progress: bool = True) -> dict[str, pd.DataFrame]:
    """Train what is missing of every diagram and return a row per cell of each; see `summarize_cell`.

    Writes FOLDER/NAME/phase.parquet, the last rows of all runs, FOLDER/NAME.csv, a row per cell, and FOLDER/NAME.md.
    Raises InputError for unknown methods and for a folder that cannot be used.
    """
    maps = {}
    with execution.results_folder() as folder:
        for diagram in diagrams:
            grid = {
                f"{x:g}-{y:g}": Cell({"x": x, "y": y}, config, SHIFT.plan(config)) for x, y, config in diagram.cells()
            }
            path, settings = folder / diagram.name / "phase.parquet", dataclasses.asdict(diagram)
            rows = train_grid(SHIFT, grid, path, settings, execution, progress)
            cells = summarize(rows)
            write_text(csv_text(cells), folder / f"{diagram.name}.csv")
            write_text(
                page(diagram, cells, divergence_note(rows, "prior_correct", ["x", "y", *RUN])),
                folder / f"{diagram.name}.md",
            )
            maps[diagram.name] = cells
    return maps
