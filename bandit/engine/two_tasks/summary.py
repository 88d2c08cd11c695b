"""What the summaries of both labs' tables share: each run's last rows, what diverged, what RL forgets, and labels.

A table has a row per evaluated step and run, whose columns `RUN` and seed name the run. Method "base" is the policy
before the second task (step 0), "none" is GRPO without KL; role is "report", or "selection" for the seeds that only
choose coefficients.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import pandas as pd

from bandit.engine.divergence import diverged, divergence_note, without_diverged
from bandit.engine.two_tasks.plan import RUN
from cokl import methods
from cokl.support.errors import InputError
from cokl.support.statistics import mean_and_half_width, with_spread

ANCHORS = ("base", "none")
"""The policies that scores relate to: the base model, and GRPO without a KL."""

label = partial(methods.label, own={"base": "Base"})
"""How tables and figures call a method."""


def final_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of each run's last step."""
    return table[table["step"] == table.groupby([*RUN, "role", "seed"], dropna=False)["step"].transform("max")]


def without_diverged_runs(table: pd.DataFrame) -> pd.DataFrame:
    """The table without the coefficients with a diverged seed. Raises InputError if GRPO w/o KL is one of them."""
    if diverged(table, "prior_correct")["method"].isin(ANCHORS).any():
        raise InputError(f"GRPO w/o KL, which all scores relate to, diverged: {diverged_note(table)}")
    return without_diverged(table, "prior_correct", RUN)


diverged_note = partial(divergence_note, metric="prior_correct", run=RUN)
"""The note on diverged runs that goes with every summary of the table; "" if there are none."""


def forgotten_and_learned(table: pd.DataFrame) -> tuple[tuple[float, float], tuple[float, float]]:
    """Prior correctness that GRPO w/o KL loses, and new correctness that it gains. All scores are divided by these.

    Means over the reported seeds of a table of one mode, each with the half-width of its 95% interval.
    """
    ends = final_rows(without_diverged_runs(table)).query("role == 'report'").set_index("seed")
    base, grpo = (ends[ends["method"] == method] for method in ANCHORS)
    return (
        mean_and_half_width(base["prior_correct"] - grpo["prior_correct"]),
        mean_and_half_width(grpo["new_correct"] - base["new_correct"]),
    )


def readable(frame: pd.DataFrame, points: Collection[str] = ()) -> pd.DataFrame:
    """Labels instead of names, and "value ± half-width" in one column: one digit for `points`, three for others."""
    shown = frame.assign(method=[label(name) for name in frame["method"]])
    for name in {"beta", "kl_prompts"}.intersection(frame):
        shown[name] = [f"{value:g}" for value in frame[name]]
    for half_width in [name for name in frame if str(name).endswith("_half_width")]:
        name = str(half_width).removesuffix("_half_width")
        digits = 1 if name in points else 3
        shown[name] = [with_spread(*pair, digits) for pair in zip(frame[name], frame[half_width], strict=True)]
        shown = shown.drop(columns=half_width)
    return shown
