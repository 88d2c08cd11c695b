"""What an experiment measured, as four tidy tables in one folder: what the report's tables and figures are made of."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from cokl.support.errors import InputError
from cokl.support.files import write_atomically
from llm_bridge.experiment.config import MATH_SETS
from llm_bridge.report.csv_tables import read_csv

GRPO = "grpo"
"""The method name of the chat stage without a regularizer."""

REPEATED = ("pass_at_n", "majority")
"""What is said of the n responses to a prompt, for each math benchmark."""


_SETTING = ("model", "method", "beta", "kl_prompts")
_TABLES = {
    "scores": (("beta", "kl_prompts", "main"), _SETTING),
    "dynamics": (("beta", "kl_prompts", "step", "math_val", "chat_val"), (*_SETTING, "step")),
    "zero_correct": (("groups", "zero_correct_groups"), ("model", "method")),
    "costs": (("first_step_seconds", "mean_length"), ("model", "method")),
    "repeated": ((), ("model", "method")),
}
"""A table's numbers that are not named after the math benchmarks, and the columns that name a row."""


def _empty(name: str) -> Any:
    numbers, key = _TABLES[name]
    return field(default_factory=lambda: pd.DataFrame(columns=list(dict.fromkeys((*key, *numbers)))))


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
    dynamics: pd.DataFrame = _empty("dynamics")
    """Validation during the chat stage, a row per (model, method, beta, kl_prompts, step): `math_val`, the first of the
    math columns, in percent, `chat_val` the mean reward. Step 0 is before the first update."""
    zero_correct: pd.DataFrame = _empty("zero_correct")
    """Current-policy rollout groups on regularization prompts over the whole chat stage, a row per (model, method):
    their number and the number of those without a correct response (E.4)."""
    costs: pd.DataFrame = _empty("costs")
    """A row per (model, method): wall-clock seconds of the first chat step, and the mean length in tokens of that
    step's responses, of both streams (F.1)."""
    repeated: pd.DataFrame = _empty("repeated")
    """Of the final evaluation's responses, a row per (model, method) in its main setting, in percent:
    SET_pass_at_n, prompts that one of the n responses solves, and SET_majority, prompts whose most frequent answer is
    correct."""
    math_columns: tuple[str, ...] = MATH_SETS
    """Which columns of `scores` are math benchmarks."""

    def __post_init__(self) -> None:
        """Makes every number a float. Raises InputError for a missing column, something that is no number, more groups
        without a correct response than groups, and two main settings of a model's method."""
        for name, (numbers, _) in _TABLES.items():
            table: pd.DataFrame = getattr(self, name)
            scored = _scored(name, self.math_columns) if name == "scores" or len(table) else ()
            missing = {"model", "method", *numbers, *scored}.difference(table.columns)
            if missing:
                raise InputError(f"{name}: no column {min(missing)!r}")
            try:
                object.__setattr__(self, name, table.astype(dict.fromkeys((*numbers, *scored), float)))
            except (TypeError, ValueError) as error:
                raise InputError(f"{name}: expected numbers in {', '.join((*numbers, *scored))}: {error}") from error
        counts = self.zero_correct
        for row in counts[~counts["zero_correct_groups"].between(0, counts["groups"])].itertuples():
            raise InputError(
                f"zero_correct: {row.model}, {row.method}: {row.zero_correct_groups:g} groups without a correct "
                f"response of {row.groups:g}; expected 0 to {row.groups:g}"
            )
        main = self.scores[self.scores["main"] == 1]
        for row in main[main.duplicated(["model", "method"])].itertuples():
            raise InputError(f"scores: {row.model} has more than one main setting of {row.method}; expected one")


def _scored(table: str, math_columns: tuple[str, ...]) -> tuple[str, ...]:
    """The table's columns of numbers that are named after the math benchmarks, and the chat set's."""
    if table == "scores":
        return (*math_columns, "chat_val")
    return tuple(f"{name}_{measure}" for name in math_columns for measure in REPEATED) if table == "repeated" else ()


def read_results(folder: Path, math_columns: tuple[str, ...] = ()) -> Results:
    """The results saved in `folder`, of whose files scores.csv, dynamics.csv, zero_correct.csv, costs.csv and
    repeated.csv only the first must be there. math_columns: of scores.csv; if none, all that are nothing else. Raises
    InputError for a missing or defective file.
    """
    if not (folder / "scores.csv").exists():
        raise InputError(f"no results in {folder}: expected scores.csv, which `cokl llm evaluate` writes")
    if not math_columns:
        others = {"model", "method", *_TABLES["scores"][0], "chat_val"}
        with (folder / "scores.csv").open(encoding="utf-8-sig", errors="replace") as file:
            math_columns = tuple(name for name in next(csv.reader(file), []) if name not in others)
    tables = {}
    for name, (numbers, key) in _TABLES.items():
        path = folder / f"{name}.csv"
        if path.exists():
            scored = _scored(name, math_columns)
            gaps = scored if name == "repeated" else ()
            tables[name] = read_csv(path, ("model", "method"), (*numbers, *scored), key, gaps=gaps)
    return Results(**tables, math_columns=math_columns)


def save_results(results: Results, folder: Path) -> None:
    """Write the tables that have rows as CSV files, each whole or not at all; numbers keep every digit."""
    for name in _TABLES:
        table: pd.DataFrame = getattr(results, name)
        if len(table):
            write_atomically(folder / f"{name}.csv", partial(table.to_csv, index=False))
