"""The sequence lab: every mode, method, coefficient and seed, trained in stacks, saved as it is done."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

import pandas as pd
from torch import Tensor

from bandit.engine.divergence import warn_of_diverged
from bandit.engine.runs import code_behind, parameters_table
from bandit.sequences.config import SEQUENCE_PRESETS, SequenceConfig
from bandit.sequences.plan import planned_runs
from bandit.sequences.tasks import sequence_task
from bandit.sequences.train import base_parameters, base_rows, train
from bandit.shift.run import Lab, train_plans
from bandit.shift.score import RUN
from bandit.two_tasks.plan import ShiftRun
from cokl.support.files import write_result
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
    keep_going: bool = False,
) -> pd.DataFrame:
    """Train everything that `config` asks for and return the tidy table, a row per evaluated step.

    Columns: seed, mode, method, beta, step, METRICS, role and kl_prompts, as in the task-shift lab's table; k is
    `config.pass_draws`. out: folder to save in and to resume from, with sequences.parquet at the end; None keeps
    nothing. jobs: processes, by default one per core. backend: local processes, or a Ray cluster. progress: show bars.
    keep_going: go on with results that other code has left in `out`.
    Raises InputError for unknown methods and for a folder that cannot be used.
    """
    if out is None:
        with tempfile.TemporaryDirectory() as temporary:
            return sequences(config, temporary, jobs, backend, progress, keep_going)
    folder = Path(out)
    runs = planned_runs(config)
    code = code_behind(SEQUENCES.module, (run.method for run in runs))
    with open_folder(folder, {**config.as_dict(), "device": "cpu"}, code, keep_going) as origin:
        table = train_plans({"": (config, runs)}, origin, jobs, backend, progress, SEQUENCES)[""]
        write_result(table, folder / "sequences.parquet")
    warn_of_diverged(table, "prior_correct", RUN)
    return table


def _make_base(config: SequenceConfig, seed: int) -> pd.DataFrame:
    return parameters_table(base_parameters(config, seed), f"the base model of seed {seed}")


def _make_base_rows(config: SequenceConfig, seed: int, parameters: Tensor) -> pd.DataFrame:
    return base_rows(config, sequence_task(config, seed, parameters))


def _make_runs(config: SequenceConfig, runs: list[ShiftRun], parameters: Tensor) -> pd.DataFrame:
    return train(config, sequence_task(config, runs[0].seed, parameters), runs)


SEQUENCES = Lab(
    "bandit.sequences.train",
    ("seed", "mode", "method", "beta", "step", *METRICS, "role", "kl_prompts"),
    planned_runs,
    _make_base,
    _make_base_rows,
    _make_runs,
)
