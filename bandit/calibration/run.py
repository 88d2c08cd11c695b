"""Training what is missing of every setting; a results folder that resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pandas as pd

from bandit.calibration.config import WITHOUT_TERM_1, CalibrationConfig
from bandit.engine.divergence import warn_of_diverged
from bandit.engine.runs import code_behind
from bandit.shift.plan import ShiftRun, planned_runs
from bandit.shift.run import train_plans
from bandit.shift.score import RUN, final
from cokl.support.files import write_result
from cokl.support.results_folder import open_folder


def calibration(
    config: CalibrationConfig,
    folder: Path,
    jobs: int | None = None,
    backend: Literal["loky", "ray"] = "loky",
    progress: bool = True,
    keep_going: bool = False,
) -> pd.DataFrame:
    """The last rows of all runs, as shift tables with a column cell; also written to FOLDER/calibration.parquet.

    keep_going: go on with results that other code has left in `folder`.
    Raises InputError for a folder that cannot be used.
    """
    experiments = {cell: config.experiment(cell) for cell in config.cells}
    plans = {
        cell: (experiment, [run for run in planned_runs(experiment) if _is_looked_at(config, run)])
        for cell, experiment in experiments.items()
    }
    methods = {run.method.name: run.method for _, runs in plans.values() for run in runs}
    code = code_behind("bandit.shift.train", methods.values())
    with open_folder(folder, {**config.as_dict(), "device": "cpu"}, code, keep_going) as origin:
        tables = train_plans(plans, origin, jobs, backend, progress)
        rows = pd.concat([final(table).assign(cell=cell) for cell, table in tables.items()], ignore_index=True)
        write_result(rows, folder / "calibration.parquet")
    warn_of_diverged(rows, "prior_correct", ["cell", *RUN])
    return rows


def _is_looked_at(config: CalibrationConfig, run: ShiftRun) -> bool:
    """Small coefficients, one for each share, are for CoKL w/o term 1 alone."""
    return run.method.name in ("none", WITHOUT_TERM_1) or run.beta in config.betas
