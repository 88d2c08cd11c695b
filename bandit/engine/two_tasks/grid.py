"""A grid: one lab on two tasks with its configuration changed from cell to cell, all in one table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bandit.engine.divergence import warn_of_diverged
from bandit.engine.runs import code_behind
from bandit.engine.two_tasks.plan import RUN, ShiftRun
from bandit.engine.two_tasks.run import Lab, train_plans
from cokl.support.experiment import Execution
from cokl.support.files import write_result
from cokl.support.results_folder import open_folder


class Cell(NamedTuple):
    """One configuration, its runs, and the columns that tell its rows from the others'."""

    labels: Mapping[str, float | str]
    config: Any
    runs: list[ShiftRun]


def train_grid(
    lab: Lab, cells: Mapping[str, Cell], path: Path, settings: dict[str, Any], execution: Execution, progress: bool
) -> pd.DataFrame:
    """Train what is missing of every cell and return the last rows of all runs, also written to `path`.

    cells: by the name of a subfolder beside `path`, all of the same methods and labels. settings: what the folder is
    bound to. Warns of runs that diverged. Raises InputError for a folder that cannot be used.
    """
    first = next(iter(cells.values()))
    code = code_behind(lab.module, (run.method for run in first.runs))
    with open_folder(path.parent, {**settings, "device": "cpu"}, code, execution.keep_going) as origin:
        plans = {name: (cell.config, cell.runs) for name, cell in cells.items()}
        tables = train_plans(lab, plans, origin, execution, progress)
        ends = [final_rows(table).assign(**cells[name].labels) for name, table in tables.items()]
        rows = pd.concat(ends, ignore_index=True)
        write_result(rows, path)
    warn_of_diverged(rows, "prior_correct", [*first.labels, *RUN])
    return rows


def final_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of each run's last step."""
    return table[table["step"] == table.groupby([*RUN, "role", "seed"], dropna=False)["step"].transform("max")]
