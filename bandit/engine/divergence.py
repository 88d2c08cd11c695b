"""Runs that diverge: cut off where it happened, marked in the table, and kept out of every mean.

A run diverges at its first update whose gradient has no finite norm in the run's arithmetic, or at the first
evaluation with a metric that is not finite. Its rows end there, with one whose metrics are NaN: that row's step, which
need not be an evaluated one, counts the updates up to the one that failed. Runs stacked beside it are not touched.

Summaries leave out a coefficient of which any seed diverged, all seeds of it, and say so: a mean over the seeds that
survived would be of a selection.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from cokl.support.errors import InputError

NOTED = 5
"""Diverged runs that a note names; the rest are counted."""


def cut_off(frames: list[pd.DataFrame], failed_at: Sequence[int], identity: Sequence[str]) -> pd.DataFrame:
    """The frames as one table, each diverged run cut off at a row without metrics.

    frames: rows of metrics, indexed by the runs' positions in the stack. failed_at: by position, the first update whose
    gradient was not finite, 0 for none. identity: the columns that are no metrics, "step" among them.
    """
    last = {run: step for run, step in enumerate(failed_at) if step}
    for frame in frames:
        finite = np.isfinite(frame.drop(columns=list(identity)).to_numpy(dtype=np.float64)).all(axis=1)
        for run, step in zip(frame.index[~finite], frame["step"][~finite], strict=True):
            last[run] = min(last.get(run, step), step)
    table = pd.concat(frames)
    if not last:
        return table.reset_index(drop=True)
    kept = table[table["step"] < table.index.map(lambda run: last.get(run, np.inf))]
    marks = table.loc[list(last), list(identity)]
    marks = marks[~marks.index.duplicated()].assign(step=[last[run] for run in last])
    return pd.concat([kept, marks], ignore_index=True)[list(table.columns)]


def spare_samplers(logit_gradient: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    """`logit_gradient` of logits (R, B, A), with NaN for runs whose logits are not finite: none draws."""
    lost = lost_runs(logits)
    if not bool(lost.any()):
        return logit_gradient(logits)
    return logit_gradient(uniform_where_lost(logits)).masked_fill(lost, torch.nan)


def lost_runs(logits: Tensor) -> Tensor:
    """(R, 1, 1) bool: the runs of which some logit (R, B, A) is not finite."""
    return ~logits.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)


def uniform_where_lost(logits: Tensor) -> Tensor:
    """The logits (R, B, A), with the uniform policy for runs of which some logit is not finite."""
    return logits.masked_fill(lost_runs(logits), 0)


def diverged(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows that mark a diverged run: those without `metric`, which every other row has."""
    return table[table[metric].isna()]


def without_diverged(table: pd.DataFrame, metric: str, run: Sequence[str]) -> pd.DataFrame:
    """The table without every run, named by the columns `run`, of which some seed diverged.

    Raises InputError if none is left.
    """
    marks = diverged(table, metric)
    if marks.empty:
        return table
    lost = pd.MultiIndex.from_frame(marks[list(run)])
    kept = table[~pd.MultiIndex.from_frame(table[list(run)]).isin(lost)].reset_index(drop=True)
    if not (kept["step"] > 0).any():
        raise InputError(f"nothing is left to compare: {divergence_note(table, metric, run)}")
    return kept


def divergence_note(table: pd.DataFrame, metric: str, run: Sequence[str]) -> str:
    """One sentence on the diverged runs of a table: how many, which, when; "" if there are none."""
    marks = diverged(table, metric)
    if marks.empty:
        return ""
    count = len(table.loc[~table["method"].isin(["base", "reference"]), [*run, "seed"]].drop_duplicates())
    named = [
        f"{mark['method']} at beta {mark['beta']:g}, seed {mark['seed']}, at step {mark['step']}"
        for mark in marks.head(NOTED).to_dict("records")
    ]
    others = f"; and {len(marks) - NOTED} more" if len(marks) > NOTED else ""
    return (
        f"{len(marks)} of {count} runs diverged ({'; '.join(named)}{others}); means leave out their coefficients, "
        "all seeds of them"
    )


def warn_of_diverged(table: pd.DataFrame, metric: str, run: Sequence[str]) -> None:
    """Say on stderr which runs diverged, if any did and some are left; else the summary's refusal says it."""
    note = divergence_note(table, metric, run)
    with contextlib.suppress(InputError):
        without_diverged(table, metric, run)
        if note:
            print(f"warning: {note}", file=sys.stderr)
