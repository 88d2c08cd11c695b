"""The sequence lab: every mode, method, coefficient and seed, trained in stacks, saved as it is done."""

from __future__ import annotations

import itertools

import pandas as pd

from bandit.engine.two_tasks.plan import ShiftRun, kl_prompts
from bandit.engine.two_tasks.run import Lab, train_lab
from bandit.sequences.config import PRESETS, SequenceConfig
from bandit.sequences.exact import MOST_LISTED, is_exact
from bandit.sequences.train import SequenceTrainer
from cokl import methods
from cokl.support.errors import InputError
from cokl.support.experiment import HERE, Execution

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


def planned_runs(config: SequenceConfig) -> list[ShiftRun]:
    """All runs of the lab, by seed, mode, method and coefficient. Raises InputError.

    A method whose expectations cannot be had is left out of exact mode, and an error if there is no other.
    """
    chosen = [methods.get(name, config.regularizer_options) for name in config.methods]
    runs = []
    for seed, mode, method in itertools.product(config.roles, config.modes, chosen):
        if mode == "sampled":
            method.streams()  # raises for a regularizer that cannot be sampled, before anything is trained
        elif not is_exact(method, config.length, config.symbols):
            if config.modes == ("exact",):
                raise InputError(
                    f"{method.name}: its expectations take a list of all responses, at most {MOST_LISTED}, and there "
                    f"are {config.symbols}^{config.length}; use --mode sampled for it"
                )
            continue
        betas = [0.0] if method.regularizer is None else sorted(config.betas)
        runs += [ShiftRun(seed, mode, method, beta, kl_prompts(config.kl_groups, method)) for beta in betas]
    return runs


def sequences(
    config: SequenceConfig = PRESETS["paper"],
    execution: Execution = HERE,
    progress: bool = True,
) -> pd.DataFrame:
    """Train everything that `config` asks for and return the tidy table, a row per evaluated step.

    Columns: seed, mode, method, beta, step, METRICS, role and kl_prompts, as in the task-shift lab's table; k is
    `config.pass_draws`. execution: where results are kept,
    with sequences.parquet at the end, by default nowhere, and who computes them. progress: show bars.
    Raises InputError for unknown methods and for a folder that cannot be used.
    """
    return train_lab(SEQUENCES, config, execution, progress)


SEQUENCES = Lab(
    "sequences",
    ("seed", "mode", "method", "beta", "step", *METRICS, "role", "kl_prompts"),
    planned_runs,
    SequenceTrainer,
)
