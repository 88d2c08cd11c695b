"""The sequence lab: every mode, method, coefficient and seed, trained in stacks, saved as it is done."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from torch import Tensor

from bandit.sequences.config import SEQUENCE_PRESETS, SequenceConfig
from bandit.sequences.plan import planned_runs
from bandit.sequences.tasks import parameter_count, sequence_task
from bandit.sequences.train import base_parameters, base_rows, train
from bandit.shift.plan import ShiftRun, regularizer_code
from bandit.shift.run import Lab, train_plans
from cokl.support.files import write_parquet
from cokl.support.results_folder import open_folder

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
) -> pd.DataFrame:
    """Train everything that `config` asks for and return the tidy table, a row per evaluated step.

    Columns: seed, mode, method, beta, step, METRICS, role and kl_prompts, as in the task-shift lab's table; k is
    `config.pass_draws`. out: folder to save in and to resume from, with sequences.parquet at the end; None keeps
    nothing. jobs: processes, by default one per core. backend: local processes, or a Ray cluster. progress: show bars.
    Raises InputError for unknown methods and for a folder that cannot be used.
    """
    if out is None:
        with tempfile.TemporaryDirectory() as temporary:
            return sequences(config, temporary, jobs, backend, progress)
    folder = Path(out)
    runs = planned_runs(config)
    open_folder(folder, {**config.as_dict(), "device": "cpu", "regularizer_code": regularizer_code(runs)})
    table = train_plans({"": (config, runs)}, folder, jobs, backend, progress, SEQUENCES)[""]
    write_parquet(table, folder / "sequences.parquet")
    return table


def _make_base(config: SequenceConfig, seed: int) -> np.ndarray:
    return base_parameters(config, seed).numpy()


def _make_base_rows(config: SequenceConfig, seed: int, parameters: Tensor) -> pd.DataFrame:
    return base_rows(config, sequence_task(config, seed, parameters))


def _make_runs(config: SequenceConfig, runs: list[ShiftRun], parameters: Tensor) -> pd.DataFrame:
    return train(config, sequence_task(config, runs[0].seed, parameters), runs)


SEQUENCES = Lab(
    ("seed", "mode", "method", "beta", "step", *METRICS, "role", "kl_prompts"),
    parameter_count,
    _make_base,
    _make_base_rows,
    _make_runs,
)
