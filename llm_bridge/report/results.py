"""What an experiment measured, as tidy tables in one folder: what the report's tables and figure are made of."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import pandas as pd

from cokl.support.errors import InputError
from cokl.support.files import write_atomically
from llm_bridge.experiment.workloads import CHAT, DISTINCT, RUN, SHARE

GRPO = "grpo"
"""The method name of the chat stage without a regularizer."""


@dataclass(frozen=True)
class Results:
    """Tables of an experiment. Any may be empty and any method may be missing: the report then says what it lacks.

    In all of them `model` (e.g. "Qwen3-0.6B") and `method` are text; `method` is "base", "grpo", a regularizer's name
    or that name with "_floor". `beta` is the regularizer's coefficient, 0 for base and grpo. `main` is 1 for the
    configuration's coefficient, which the main tables show, and 0 for the others of a search.
    """

    scores: pd.DataFrame
    """Final evaluation, a row per (model, method, beta): `main`, `math_columns` (average@n accuracy, in percent),
    `chat_val` (mean reward), `share` (of the gradient, percent), and `distinct` (right answers a prompt). A workload
    may lack `chat_val` or `distinct`."""
    dynamics: pd.DataFrame
    """Validation during the chat stage, a row per (model, method, step) of main settings: `math_val`, the first of the
    math columns, in percent, `chat_val` the mean reward, and `distinct`, as in `scores`. Step 0 is before the first
    update."""
    zero_correct: pd.DataFrame
    """Current-policy rollout groups on regularization prompts over the whole chat stage, a row per (model, method):
    their number `groups` and the number `zero_correct_groups` of those without a correct response (E.4)."""

    @property
    def math_columns(self) -> tuple[str, ...]:
        """Which columns of `scores` are math benchmarks: those that are nothing else."""
        return tuple(str(name) for name in self.scores if name not in (*RUN, CHAT, DISTINCT, SHARE))


def read_results(folder: Path) -> Results:
    """The results saved in `folder`. Raises InputError without scores.csv, and for a file that is no such table."""
    if not (folder / "scores.csv").exists():
        raise InputError(f"no results in {folder}: expected scores.csv, which `cokl llm report` writes")
    files = {field.name: folder / f"{field.name}.csv" for field in fields(Results)}
    try:
        read = {name: pd.read_csv(file) if file.exists() else pd.DataFrame() for name, file in files.items()}
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} holds a file that is no CSV table: {' '.join(str(error).split())[:120]}") from error
    if lacking := [name for name in RUN if name not in read["scores"]]:
        raise InputError(f"{folder / 'scores.csv'}: no column {lacking[0]!r}; make it anew with `cokl llm report`")
    return Results(**read)


def save_results(results: Results, folder: Path) -> None:
    """Write the tables that have rows as CSV files, each whole or not at all; numbers keep every digit."""
    for name, table in vars(results).items():
        write_csv(table, folder / f"{name}.csv")


def write_csv(table: pd.DataFrame, file: Path) -> None:
    """A table with rows as a file, whole or not at all; of one without any, an earlier run's file goes.

    Left there, it would be read as this run's.
    """
    if len(table):
        write_atomically(file, partial(table.to_csv, index=False))
    else:
        file.unlink(missing_ok=True)
