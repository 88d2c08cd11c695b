"""Training what is missing of every setting; a results folder that resumes."""

from __future__ import annotations

import pandas as pd

from bandit.calibration.config import WITHOUT_TERM_1, CalibrationConfig
from bandit.sequences.run import SEQUENCES
from bandit.shift.run import SHIFT
from bandit.two_tasks.grid import Cell, train_grid
from bandit.two_tasks.plan import ShiftRun
from bandit.two_tasks.run import Lab
from cokl.support.experiment import HERE, Execution


def calibration(
    config: CalibrationConfig,
    execution: Execution = HERE,
    progress: bool = True,
) -> pd.DataFrame:
    """The last rows of all runs, as the lab's tables with a column cell; also saved as calibration.parquet.

    Raises InputError for a folder that cannot be used.
    """
    lab = lab_of(config)
    experiments = {cell: config.experiment(cell) for cell in config.cells}
    grid = {
        cell: Cell({"cell": cell}, experiment, [run for run in lab.plan(experiment) if _is_looked_at(config, run)])
        for cell, experiment in experiments.items()
    }
    with execution.results_folder() as folder:
        return train_grid(lab, grid, folder / "calibration.parquet", config.as_dict(), execution, progress)


def lab_of(config: CalibrationConfig) -> Lab:
    """The lab that is searched."""
    return SEQUENCES if config.of_sequences else SHIFT


def _is_looked_at(config: CalibrationConfig, run: ShiftRun) -> bool:
    """Small coefficients, one for each share, are for CoKL w/o term 1 alone."""
    return run.method.name in ("none", WITHOUT_TERM_1) or run.beta in config.betas
