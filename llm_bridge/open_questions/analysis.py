"""From the measurements of the runs to what is compared: methods at one correctness.

A run is measured at some steps. Between two of them its correctness and every other number are taken to be linear, so
that each run has a value at a correctness which its measurements enclose, on their first way past it.

Assumption beyond the paper: numbers are means over questions, each of equal weight; intervals are over seeds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from cokl.support.errors import InputError
from cokl.support.files import write_text
from cokl.support.statistics import csv_text, mean_and_half_width

NUMBERS = ("right", "different", "different_of_32", "entropy", "cached_kl")
"""What is measured of the answers to a question, as `experiment.measured` has it."""

LACKING = ("different_of_32", "entropy", "cached_kl")
"""Those that a question may lack, where too few answers to it are right."""

LEVEL = 0.8
"""The correctness at which methods are compared: the rule is in FINDINGS."""

RUNS = "RUNS.csv"
"""In a folder of runs, once all are finished: a row for each run, question and measurement."""
WORDS = ["answers", "replies"]
"""Columns that RUNS.csv leaves out for their size; the runs' own files have them."""


def save(rows: pd.DataFrame, folder: Path) -> None:
    """Write what `experiment.conduct` gave as the folder's RUNS.csv."""
    write_text(csv_text(rows.drop(columns=WORDS)), folder / RUNS)


def read(folder: Path) -> pd.DataFrame:
    """The rows of a folder's RUNS.csv. Raises InputError for a file that is no such table or damaged, and
    where the first seed, which pictures show, has no finished run.
    """
    path = folder / RUNS
    try:
        rows = pd.read_csv(path)
    except (OSError, ValueError) as error:  # ValueError: whatever pandas makes of damaged text
        said = " ".join(str(error).split())
        raise InputError(f"{path}: expected a table of runs, but it cannot be read: {said}") from error
    needed = ("seed", "method", "beta", "step", "held_out", *NUMBERS)
    missing = [name for name in needed if name not in rows]
    if missing:
        raise InputError(f"{path} lacks the column {missing[0]!r}; it has {', '.join(map(str, rows.columns))}")
    if rows.empty:
        raise InputError(f"{path} has no rows; expected those of finished runs")
    _require_cells(rows, needed, path)
    seed = rows["seed"].iloc[0]
    trained = rows[~rows["held_out"] & (rows["seed"] == seed)]
    base, start = trained["method"] == "base", trained["step"] == 0
    for rows_of, there in (("method base at step 0", base & start), ("another method after step 0", ~base & ~start)):
        if not there.any():
            raise InputError(f"{path}: seed {seed:g} has no rows of {rows_of}; expected some, with held_out False")
    return rows


def _require_cells(rows: pd.DataFrame, needed: Sequence[str], path: Path) -> None:
    """Make numbers of the columns that hold them. Raises InputError at the first cell that is none of its column's."""
    for name in needed:
        column, expected = rows[name], "a finite number"
        if name not in ("method", "held_out") and column.dtype.kind not in "if":
            # as text, since pandas keeps integers of any length
            rows[name] = pd.to_numeric(column.astype(str), errors="coerce")
        match name:
            case "method":
                good, expected = column.notna(), "a method"
            case "held_out":
                good, expected = column.astype(str).isin(["True", "False"]), "True or False"
            case "right":
                good, expected = rows[name].between(0, 1), "a number from 0 to 1"
            case _:
                good = rows[name].abs().lt(math.inf) | (column.isna() & (name in LACKING))
        if not good.all():
            row = int((~good).to_numpy().argmax())
            raise InputError(f"{path}: {name} in row {row + 1}: expected {expected}, got {column.iloc[row]}")


def means(rows: pd.DataFrame) -> pd.DataFrame:
    """The mean over questions of each measurement, a row for each run and step, the base's among them as step 0.

    Of the questions that are trained on, and as NAME_held_out of the others. A number that some question lacks is the
    mean of the others: the first 32 right ones, where fewer are right.
    """
    keys = ["seed", "method", "beta", "step"]
    trained, others = (
        rows[rows["held_out"] == held_out].groupby(keys, sort=False)[list(NUMBERS)].mean() for held_out in (False, True)
    )
    found = trained.join(others.add_suffix("_held_out")).reset_index()
    base, after = found[found["method"] == "base"], found[found["method"] != "base"]
    starts = after[["seed", "method", "beta"]].drop_duplicates()
    joined = starts.merge(base.drop(columns=["method", "beta"]), on="seed")
    return pd.concat([joined, after], ignore_index=True).sort_values(keys, kind="stable", ignore_index=True)


def at(path: pd.DataFrame, correctness: float, number: str) -> float:
    """A run's `number` where its correctness first reaches `correctness`; NaN if it never does.

    Args:
        path: the rows of one run in the order of steps, as `means` gives them.
        correctness: in (0, 1).
        number: one of `NUMBERS`, or of those held out.
    """
    steps = zip(path["right"], path[number], strict=True)
    for (low, before), (high, after) in itertools.pairwise(steps):
        if low < correctness <= high:
            return float(before + (after - before) * (correctness - low) / (high - low))
    return math.nan


def matched(paths: pd.DataFrame, correctness: float) -> pd.DataFrame:
    """Every number of every run where it reaches one correctness on the questions it is trained on, a row a run."""
    lines = [
        dict(zip(("seed", "method", "beta"), key, strict=True))
        | {
            number: at(path, correctness, number)
            for number in path.columns
            if number.removesuffix("_held_out") in NUMBERS
        }
        for key, path in paths.groupby(["seed", "method", "beta"], sort=False)
    ]
    return pd.DataFrame(lines)


def difference(table: pd.DataFrame, rival: str, number: str) -> tuple[float, float, int]:
    """CoKL's `number` minus a rival's, paired by seed: mean, half of the 95% t-interval, and the number of seeds."""
    wide = table.pivot(index="seed", columns="method", values=number)
    values = (wide["cokl"] - wide[rival]).dropna()
    return (*mean_and_half_width(values), len(values))


def most_answers(base: pd.DataFrame) -> str:
    """The trained question to which the base gives the most different right answers, the first of these."""
    trained = base[~base["held_out"]]
    return str(trained["question"].iloc[int(trained["different"].to_numpy().argmax())])


def ranked(counts: Sequence[tuple[str, int]], shown: int) -> tuple[list[tuple[str, int]], int, int, int]:
    """The `shown` commonest right answers; how many others there are, how often these came, and how many were wrong."""
    right = [(name, count) for name, count in counts if name]
    rest = right[shown:]
    return right[:shown], len(rest), sum(count for _, count in rest), sum(count for name, count in counts if not name)
