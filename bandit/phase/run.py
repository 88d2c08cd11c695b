"""Training what is missing of the phase diagrams, and writing a table and a page for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from bandit.engine.divergence import divergence_note, warn_of_diverged
from bandit.engine.runs import code_behind
from bandit.phase.config import Diagram
from bandit.phase.report import render
from bandit.phase.score import summarize
from bandit.shift.plan import planned_runs
from bandit.shift.report import csv_text
from bandit.shift.run import SHIFT
from bandit.shift.score import final
from bandit.two_tasks.plan import RUN, ShiftRun
from bandit.two_tasks.run import Lab, train_plans
from cokl.support.experiment import HERE, Execution
from cokl.support.files import write_result, write_text
from cokl.support.results_folder import open_folder


def run(
    diagrams: list[Diagram],
    execution: Execution = HERE,
    progress: bool = True,
) -> dict[str, pd.DataFrame]:
    """Train what is missing of every diagram and return a row per cell of each; see `summarize_cell`.

    Writes FOLDER/NAME/phase.parquet, the last rows of all runs, FOLDER/NAME.csv, a row per cell, and FOLDER/NAME.md.
    Raises InputError for unknown methods and for a folder that cannot be used.
    """
    found = {}
    with execution.results_folder() as folder:
        for diagram in diagrams:
            plans = {f"{x:g}-{y:g}": (config, planned_runs(config)) for x, y, config in diagram.cells()}
            places = {f"{x:g}-{y:g}": {"x": x, "y": y} for x, y, _ in diagram.cells()}
            table, settings = folder / diagram.name / "phase.parquet", dataclasses.asdict(diagram)
            rows = train_cells(plans, places, table, settings, execution, progress)
            cells = summarize(rows)
            write_text(csv_text(cells), folder / f"{diagram.name}.csv")
            write_text(
                render(diagram, cells, divergence_note(rows, "prior_correct", ["x", "y", *RUN])),
                folder / f"{diagram.name}.md",
            )
            found[diagram.name] = cells
    return found


def train_cells(
    plans: Mapping[str, tuple[Any, list[ShiftRun]]],
    places: Mapping[str, Mapping[str, float | str]],
    path: Path,
    settings: dict[str, Any],
    execution: Execution,
    progress: bool,
    lab: Lab = SHIFT,
) -> pd.DataFrame:
    """Train what is missing of several experiments and return the last rows of all their runs, also written to `path`.

    plans: as `train_plans` takes them, all of the same methods. places: by the same names, columns that tell an
    experiment's rows from the others'. settings: what its folder is bound to. Warns of runs that diverged.
    """
    _, some_runs = next(iter(plans.values()))
    code = code_behind(lab.module, (run.method for run in some_runs))
    with open_folder(path.parent, {**settings, "device": "cpu"}, code, execution.keep_going) as origin:
        tables = train_plans(lab, plans, origin, execution, progress)
        ends = [final(table).assign(**places[name]) for name, table in tables.items()]
        rows = pd.concat(ends, ignore_index=True)
        write_result(rows, path)
    warn_of_diverged(rows, "prior_correct", [*next(iter(places.values())), *RUN])
    return rows
