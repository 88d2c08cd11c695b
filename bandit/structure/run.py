"""Training what is missing of a map; a results folder that resumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from bandit.engine.two_tasks.grid import Cell, train_grid
from bandit.engine.two_tasks.plan import ShiftRun, kl_prompts
from bandit.engine.two_tasks.run import Lab
from bandit.sequences.config import SequenceConfig
from bandit.sequences.run import SEQUENCES
from bandit.shift.config import PAPER_BETA
from bandit.shift.run import SHIFT
from bandit.structure.config import COKL, MAPS, REVERSE_BETAS, REVERSE_KL, WITHOUT_TERM_1, StructureConfig
from cokl import methods
from cokl.support.experiment import HERE, Execution


def structure(config: StructureConfig, execution: Execution = HERE, progress: bool = True) -> pd.DataFrame:
    """The last rows of all runs of a map, as its lab's tables with a column cell; also saved as structure.parquet.

    Raises InputError for a folder that cannot be used.
    """
    lab = lab_of(config)
    grid = {
        cell: Cell({"cell": cell}, config.experiment(cell), list(planned_runs(config, cell))) for cell in config.chosen
    }
    with execution.results_folder() as folder:
        return train_grid(lab, grid, folder / "structure.parquet", config.as_dict(), execution, progress)


def planned_runs(config: StructureConfig, cell: str) -> Iterator[ShiftRun]:
    """Of a setting: CoKL and replay at the map's coefficients, the reverse KL at E.3's, w/o term 1 at the paper's.

    The last has as many prompts per update as CoKL, and thus half of its responses.
    """
    experiment = config.experiment(cell)
    betas = {REVERSE_KL: REVERSE_BETAS, WITHOUT_TERM_1: (PAPER_BETA,), "none": (0.0,)}
    for run in lab_of(config).plan(experiment):
        if run.beta in betas.get(run.method.name, config.betas):
            prompts = kl_prompts(experiment.kl_groups, methods.get(COKL))
            yield replace(run, kl_prompts=prompts) if run.method.name == WITHOUT_TERM_1 else run


def lab_of(config: StructureConfig) -> Lab:
    """The lab that the map is of."""
    return SEQUENCES if MAPS[config.map].lab is SequenceConfig else SHIFT
