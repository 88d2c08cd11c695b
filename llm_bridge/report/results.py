"""What an experiment measured, as tidy tables in one folder: what the report's tables and figures are made of."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pandas as pd

from cokl.support.errors import InputError
from cokl.support.files import write_atomically
from llm_bridge.experiment.config import MATH_SETS
from llm_bridge.report.csv_tables import read_csv

GRPO = "grpo"
"""The method name of the chat stage without a regularizer."""


def _numbers(math_columns: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Every table's columns of numbers."""
    return {
        "scores": ("beta", "kl_prompts", "main", *math_columns, "chat_val"),
        "dynamics": ("beta", "kl_prompts", "step", "math_val", "chat_val"),
        "zero_correct": ("groups", "zero_correct_groups"),
        "costs": ("first_step_seconds", "mean_length"),
    }


@dataclass(frozen=True)
class Results:
    """Tables of an experiment. Any may be empty and any method may be missing: the report then says what it lacks.

    In all of them `model` (e.g. "Qwen3-0.6B") and `method` are text; `method` is "base", "grpo", a regularizer's name
    or that name with "_floor". `beta` is the regularizer's coefficient and `kl_prompts` the prompts of its minibatch,
    both 0 for base and grpo.
    """

    scores: pd.DataFrame
    """Final evaluation, a row per (model, method, beta, kl_prompts): `main` (1 for the one setting of a model's method
    that the main tables show, 0 for the other settings of a sweep over the coefficient or batch size), `math_columns`
    (average@8 accuracy, in percent), `chat_val` (mean reward)."""
    dynamics: pd.DataFrame = field(default_factory=pd.DataFrame)
    """Validation during the chat stage, a row per (model, method, beta, kl_prompts, step): `math_val`, the first of the
    math columns, in percent, `chat_val` the mean reward. Step 0 is before the first update."""
    zero_correct: pd.DataFrame = field(default_factory=pd.DataFrame)
    """Current-policy rollout groups on regularization prompts over the whole chat stage, a row per (model, method):
    their number and the number of those without a correct response (E.4)."""
    costs: pd.DataFrame = field(default_factory=pd.DataFrame)
    """A row per (model, method): wall-clock seconds of the first chat step, and the mean length in tokens of that
    step's responses, of both streams (F.1)."""
    math_columns: tuple[str, ...] = MATH_SETS
    """Which columns of `scores` are math benchmarks."""

    def __post_init__(self) -> None:
        """Makes every number a float, and gives a table that was not measured its columns.

        Raises InputError for two main settings of a model's method.
        """
        for name, numbers in _numbers(self.math_columns).items():
            table: pd.DataFrame = getattr(self, name)
            if table.columns.empty:
                table = pd.DataFrame(columns=["model", "method", *numbers])
            object.__setattr__(self, name, table.astype(dict.fromkeys(numbers, float)))
        main = self.scores[self.scores["main"] == 1]
        for row in main[main.duplicated(["model", "method"])].itertuples():
            raise InputError(f"scores: {row.model} has more than one main setting of {row.method}; expected one")


def read_results(folder: Path) -> Results:
    """The results saved in `folder`, of whose files scores.csv, dynamics.csv, zero_correct.csv and costs.csv only the
    first must be there. Its columns that are nothing else are math benchmarks. Raises InputError for a missing or
    defective file.
    """
    if not (folder / "scores.csv").exists():
        raise InputError(f"no results in {folder}: expected scores.csv, which `cokl llm report` writes")
    others = {"model", "method", *_numbers(())["scores"]}
    with (folder / "scores.csv").open(encoding="utf-8-sig", errors="replace") as file:
        math_columns = tuple(name for name in next(csv.reader(file), []) if name not in others)
    tables, texts = {}, ("model", "method")
    for name, numbers in _numbers(math_columns).items():
        if (path := folder / f"{name}.csv").exists():
            key = [*texts, *(column for column in numbers if column in ("beta", "kl_prompts", "step"))]
            tables[name] = read_csv(path, texts, numbers, key)
    return Results(**tables, math_columns=math_columns)


def save_results(results: Results, folder: Path) -> None:
    """Write the tables that have rows as CSV files, each whole or not at all; numbers keep every digit."""
    for name in _numbers(()):
        table: pd.DataFrame = getattr(results, name)
        if len(table):
            write_atomically(folder / f"{name}.csv", partial(table.to_csv, index=False))
