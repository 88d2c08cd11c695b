"""The sequence lab: every mode, method, coefficient and seed, trained in stacks, saved as it is done."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pandas as pd

from bandit.sequences.config import SEQUENCE_PRESETS, SequenceConfig
from bandit.sequences.plan import planned_runs
from bandit.sequences.train import SequenceTrainer
from bandit.two_tasks.run import Lab, train_lab

METRICS = (
    "prior_correct",
    "prior_pass_at_k",
    "new_correct",
    "new_pass_at_k",
    "conditional_kl",
    "conditional_entropy",
    "entropy",
    "mass_drift",
    "correct_drift",
    "incorrect_drift",
    "new_kl",
    "zero_correct_rate",
)


def sequences(
    config: SequenceConfig = SEQUENCE_PRESETS["paper"],
    out: Path | str | None = None,
    jobs: int | None = None,
    backend: Literal["loky", "ray"] = "loky",
    progress: bool = True,
    keep_going: bool = False,
) -> pd.DataFrame:
    """Train everything that `config` asks for and return the tidy table, a row per evaluated step.

    Columns: seed, mode, method, beta, step, METRICS, role and kl_prompts, as in the task-shift lab's table; k is
    `config.pass_draws`. out: folder to save in and to resume from, with sequences.parquet at the end; None keeps
    nothing. jobs: processes, by default one per core. backend: local processes, or a Ray cluster. progress: show bars.
    keep_going: go on with results that other code has left in `out`.
    Raises InputError for unknown methods and for a folder that cannot be used.
    """
    return train_lab(SEQUENCES, config, out, jobs, backend, progress, keep_going)


SEQUENCES = Lab(
    "sequences",
    ("seed", "mode", "method", "beta", "step", *METRICS, "role", "kl_prompts"),
    planned_runs,
    SequenceTrainer,
)
