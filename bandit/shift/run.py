"""The task-shift lab: every mode, method, coefficient and seed, trained in stacks, saved as it is done."""

from __future__ import annotations

import pandas as pd

from bandit.shift.config import PRESETS, ShiftConfig
from bandit.shift.plan import planned_runs
from bandit.shift.train import ShiftTrainer
from bandit.two_tasks.run import Lab, train_lab
from cokl.support.experiment import HERE, Execution

COLUMNS = (
    "seed",
    "mode",
    "method",
    "beta",
    "step",
    "prior_correct",
    "new_correct",
    "prior_pass_at_k",
    "conditional_kl",
    "mass_drift",
    "correct_drift",
    "incorrect_drift",
    "zero_correct_rate",
    "role",
    "kl_prompts",
)


def shift(
    config: ShiftConfig = PRESETS["paper"],
    execution: Execution = HERE,
    progress: bool = True,
) -> pd.DataFrame:
    """Train everything that `config` asks for and return the tidy table, a row per evaluated step; see COLUMNS.

    Rows of method "base" hold the base model, at step 0. role: "report", or "selection" for the seeds on which
    coefficients are chosen. Rows of the KL-batch sweep differ from the others in kl_prompts, the prompts of the buffer
    per update. execution: where results are kept, with shift.parquet at the end, by default nowhere, and who computes
    them. progress: show bars. A run that diverges ends in a row without metrics, at the step where it happened; see
    `bandit.engine.divergence`.
    Raises InputError for unknown methods and for a folder that cannot be used.
    """
    return train_lab(SHIFT, config, execution, progress)


SHIFT = Lab("shift", COLUMNS, planned_runs, ShiftTrainer)
