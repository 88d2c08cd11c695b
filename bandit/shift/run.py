"""The task-shift lab: every mode, method, coefficient and seed, trained in stacks, saved as it is done."""

from __future__ import annotations

import itertools

import pandas as pd

from bandit.engine.two_tasks.plan import ShiftRun, kl_prompts
from bandit.engine.two_tasks.run import Lab, train_lab
from bandit.shift.config import PRESETS, ShiftConfig
from bandit.shift.train import ShiftTrainer
from cokl import methods
from cokl.support.errors import InputError
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


def planned_runs(config: ShiftConfig) -> list[ShiftRun]:
    """All runs of the lab, by seed, mode, method and coefficient. Raises InputError.

    The KL-batch sweep concerns those of `config.kl_sweep_methods` that are trained at all, on the reported seeds.
    """
    chosen = [methods.get(name, config.regularizer_options) for name in config.methods]
    for name in config.kl_sweep_methods:
        if methods.get(name).regularizer is None:
            raise InputError(f"kl_sweep_methods: expected methods with a regularizer, got {name}")
    runs = []
    for (seed, role), mode, method in itertools.product(config.roles.items(), config.modes, chosen):
        if mode == "sampled":
            method.streams()  # raises for a regularizer that cannot be sampled, before anything is trained
        if method.regularizer is None:
            settings = [(0.0, 0)]
        else:
            settings = [(beta, kl_prompts(config.kl_groups, method)) for beta in sorted(config.betas)]
            if role == "report" and method.name in config.kl_sweep_methods:
                settings += [(config.kl_sweep_beta, size) for size in config.kl_sweep]
        runs += [ShiftRun(seed, mode, method, *setting) for setting in dict.fromkeys(settings)]
    return runs


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
