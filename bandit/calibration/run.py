"""Training what is missing of every setting; a results folder that resumes."""

from __future__ import annotations

import pandas as pd

from bandit.calibration.config import WITHOUT_TERM_1, CalibrationConfig
from bandit.engine.two_tasks.grid import Cell, train_grid
from bandit.engine.two_tasks.run import Lab
from bandit.sequences.run import SEQUENCES
from bandit.shift.run import SHIFT
from cokl.support.experiment import HERE, Execution


def calibration(
    config: CalibrationConfig,
    execution: Execution = HERE,
    progress: bool = True,
) -> pd.DataFrame:
    """The last rows of all runs, as the lab's tables with a column cell; also saved as calibration.parquet.

    Raises InputError for a folder that cannot be used.
    """
    lab, grid = lab_of(config), {}
    with_any = ("none", WITHOUT_TERM_1)  # small coefficients, one for each share, are for CoKL w/o term 1 alone
    for cell in config.cells:
        experiment = config.experiment(cell)
        runs = [run for run in lab.plan(experiment) if run.method.name in with_any or run.beta in config.betas]
        grid[cell] = Cell({"cell": cell}, experiment, runs)
    with execution.results_folder() as folder:
        return train_grid(lab, grid, folder / "calibration.parquet", config.as_dict(), execution, progress)


def lab_of(config: CalibrationConfig) -> Lab:
    """The lab that is searched."""
    return SEQUENCES if config.of_sequences else SHIFT
