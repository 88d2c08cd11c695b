"""Raw scores on the dual-anchor scale, with the paper's averages (E.5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from cokl.methods import UNREGULARIZED
from cokl.metrics import dual_anchor
from cokl.support.errors import InputError
from llm_bridge.experiment.config import BASE


def with_averages(scores: pd.DataFrame, math_columns: Sequence[str]) -> pd.DataFrame:
    """model, method, math columns, math_avg (their mean), chat_val, overall (the mean of math_avg and chat_val)."""
    math_average = scores[list(math_columns)].mean(axis=1)
    frame = scores.assign(math_avg=math_average, overall=(math_average + scores["chat_val"]) / 2)
    return frame[["model", "method", *math_columns, "math_avg", "chat_val", "overall"]]


def normalize(scores: pd.DataFrame, math_columns: Sequence[str]) -> pd.DataFrame:
    """Every score between the anchors of its model, in percent, and the averages of the normalized scores.

    scores: a row per (model, method), with `math_columns` and `chat_val`, on any scale. Math is 100 at `base` and 0 at
    `grpo` (or `none`), chat the reverse. Rows stay in order, models together. Raises InputError where a model lacks an
    anchor or has two, and where its anchors coincide.
    """
    normalized = []
    for model, rows, base, unregularized in _with_anchors(scores):
        columns = {
            name: dual_anchor(rows[name], unregularized[name], base[name], f"{model}, {name}") for name in math_columns
        }
        chat = dual_anchor(rows["chat_val"], base["chat_val"], unregularized["chat_val"], f"{model}, chat_val")
        normalized.append(rows.assign(**columns, chat_val=chat))
    return with_averages(pd.concat(normalized, ignore_index=True), math_columns)


def reversed_anchors(scores: pd.DataFrame, math_columns: Sequence[str]) -> list[str]:
    """A line for each model and column whose anchors are the wrong way round: nothing was forgotten, or learned."""
    lines = []
    for model, _, base, unregularized in _with_anchors(scores):
        lines += [
            f"{model}: GRPO w/o KL lost nothing on {name}, so a high normalized score there means a lower raw one"
            for name in math_columns
            if unregularized[name] > base[name]
        ]
        if unregularized["chat_val"] < base["chat_val"]:
            lines.append(f"{model}: GRPO w/o KL gained nothing on chat_val, so a high score there means a lower reward")
    return lines


def _with_anchors(scores: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, pd.Series, pd.Series]]:
    """Each model with its rows, that of the base, and that of GRPO w/o KL."""
    for model, rows in scores.groupby("model", sort=False):
        yield str(model), rows, _anchor(rows, str(model), (BASE,)), _anchor(rows, str(model), UNREGULARIZED)


def _anchor(rows: pd.DataFrame, model: str, names: Sequence[str]) -> pd.Series:
    of_method = rows[rows["method"].isin(names)]
    if len(of_method) != 1:
        count = "no row" if of_method.empty else "more than one row"
        raise InputError(f"{model}: {count} for the anchor method {' or '.join(reversed(names))}; expected one")
    return of_method.iloc[0]
