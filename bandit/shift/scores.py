"""Scores of a shift table relative to the base model and to GRPO, and its rows where methods are compared.

Assumption beyond the paper: the anchors are means over seeds, and each seed's score is that of the linearised ratio.
So scores average to the ratio of means, intervals include the spread of the anchors, and a seed that forgets little has
no extreme score.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from bandit.engine.two_tasks.plan import RUN
from bandit.engine.two_tasks.summary import ANCHORS, final_rows, without_diverged_runs
from bandit.shift.config import PAPER_BETA
from cokl.metrics import dual_anchor
from cokl.support.errors import InputError
from cokl.support.statistics import mean_and_half_width

MATCHED_ADAPTATION = 90.0
"""The common target: new-task correctness that is 10% of GRPO's gain short of GRPO's."""

FORWARD, REVERSE = ("forward_kl", "correct_forward_kl"), ("reverse_kl", "correct_reverse_kl")
REVERSE_BETA = 1e-3
"""The coefficient of the reverse KLs in the paper's tables (E.3)."""

BEST, EQUAL, PAPER = "best", "equal adaptation", f"beta {PAPER_BETA:g}"
"""Where methods are compared: each at its best coefficient, where every one adapts as much, all at CoKL's in E.3."""
E3 = "E.3's coefficients"
"""1 for CoKL, its ablations and the forward KLs, 0.001 for the reverse KLs."""

_SCORES = (("retention", "prior_correct", "none", "base"), ("adaptation", "new_correct", "base", "none"))


@dataclass(frozen=True)
class Scored:
    """A shift table, scored, its coefficients chosen."""

    table: pd.DataFrame
    """As `score` gives it."""
    best: pd.DataFrame
    """As `best_coefficients` gives it."""
    selection_overall: pd.Series
    """Overall at the best coefficient on the selection seeds, by mode and method."""
    main: pd.DataFrame
    """As `main_rows` gives it."""
    ends: pd.DataFrame
    """The reported seeds' final ones of these."""
    rows: Mapping[str, pd.DataFrame]
    """The reported seeds' final rows by where methods are compared; there "equal adaptation" has retention alone."""

    @classmethod
    def of(cls, table: pd.DataFrame) -> Scored:
        """From the lab's table. Raises InputError as `score` does, and if the table lacks the selection seeds."""
        scored = score(table)
        best, main = best_coefficients(scored), main_rows(scored)
        selection = final_rows(best.merge(scored[scored["role"] == "selection"]))
        runs = main[["mode", "method", "beta", "kl_prompts"]].drop_duplicates()
        unregularized = runs["method"] == "none"
        in_e3 = runs["beta"] == runs["method"].map(dict.fromkeys(REVERSE, REVERSE_BETA)).fillna(PAPER_BETA)
        rows = {
            BEST: final_rows(reported_rows(scored, best)),
            EQUAL: at_equal_adaptation(scored),
            PAPER: final_rows(reported_rows(scored, runs[(runs["beta"] == PAPER_BETA) | unregularized])),
            E3: final_rows(reported_rows(scored, runs[in_e3])),
        }
        selection_overall = selection.groupby(["mode", "method"])["overall"].mean()
        return cls(scored, best, selection_overall, main, final_rows(reported_rows(scored, runs)), rows)


def score(table: pd.DataFrame) -> pd.DataFrame:
    """The shift table with columns retention, adaptation and their mean, overall; base 100 and GRPO 0 for retention.

    Seeds of one role are normalized by their own anchors: choosing on the selection seeds sees no reported seed.
    Reported scores have passed `undetermined_as_nan`. Coefficients with a diverged seed are left out.
    Raises InputError if an anchor is missing or diverged, or the anchors coincide.
    """
    table = without_diverged_runs(table).reset_index(drop=True)
    scored, last = table.copy(), final_rows(table)
    seeds = ["mode", "role", "seed"]
    of_anchor = {method: last[last["method"] == method].set_index(seeds) for method in ANCHORS}
    of_row = pd.MultiIndex.from_frame(table[seeds])
    for name, column, zero, hundred in _SCORES:
        ends = {"zero": of_anchor[zero][column].reindex(of_row), "hundred": of_anchor[hundred][column].reindex(of_row)}
        rows = table[[*RUN, "role", "step"]].assign(value=table[column], **{k: v.to_numpy() for k, v in ends.items()})
        if rows[["zero", "hundred"]].isna().any(axis=None):
            raise InputError("the shift table lacks base or none for some seeds; add none to the methods")
        means = rows.groupby([*RUN, "role", "step"], dropna=False)[["value", "zero", "hundred"]].transform("mean")
        ratio = dual_anchor(means["value"], means["zero"], means["hundred"], name)
        residual = 100 * (rows["value"] - rows["zero"]) - ratio * (rows["hundred"] - rows["zero"])
        scored[name] = ratio + residual / (means["hundred"] - means["zero"])
    scored["overall"] = (scored["retention"] + scored["adaptation"]) / 2
    return undetermined_as_nan(scored, "report")


def undetermined_as_nan(scored: pd.DataFrame, role: str) -> pd.DataFrame:
    """A scored table, with NaN for the role's scores whose denominator has a 95% interval that contains zero."""
    determined = scored.copy()
    ends = final_rows(scored[scored["role"] == role])
    for mode, rows in ends.groupby("mode"):
        of = {method: rows[rows["method"] == method].set_index("seed") for method in ANCHORS}
        for name, column, *_ in _SCORES:
            mean, half_width = mean_and_half_width(of["base"][column] - of["none"][column])
            if abs(mean) <= half_width:
                determined.loc[(determined["role"] == role) & (determined["mode"] == mode), [name, "overall"]] = (
                    math.nan
                )
    return determined


def main_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the coefficient search, with which the selection seeds were trained too; not the KL-batch sweep."""
    return table.merge(table.loc[table["role"] == "selection", RUN].drop_duplicates(), on=RUN)


def best_coefficients(scored: pd.DataFrame) -> pd.DataFrame:
    """For each mode and method the coefficient with the highest Overall on the selection seeds.

    Columns: those of RUN; edge, whether it is the grid's smallest or largest. Raises InputError without such seeds.
    """
    rows = main_rows(final_rows(scored[scored["role"] == "selection"]))
    if rows.empty:
        raise InputError("the shift table has no selection seeds, on which coefficients are chosen")
    means = rows.groupby(RUN, sort=False)["overall"].mean().reset_index()
    groups = means.groupby(["mode", "method"], sort=False)
    low, high = groups["beta"].transform("min"), groups["beta"].transform("max")
    edge = (low < high) & ((means["beta"] == low) | (means["beta"] == high))
    return means.assign(edge=edge).loc[groups["overall"].idxmax(), [*RUN, "edge"]].reset_index(drop=True)


def reported_rows(scored: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """The reported seeds' rows of the chosen coefficients, all steps, in the chosen order."""
    return chosen.merge(scored[scored["role"] == "report"], on=RUN)


def at_equal_adaptation(scored: pd.DataFrame) -> pd.DataFrame:
    """The reported seeds' retention where their mean adaptation is 90, between two neighbouring coefficients.

    If the mean passes 90 between several pairs, the pair counts that retains most on the selection seeds. A seed's
    retention is its own, moved to an adaptation of 90 along the line through the means, so that intervals include
    the noise of its adaptation. A method that never passes 90 has no rows. Columns: mode, method, seed, retention.
    """
    last = main_rows(final_rows(scored))
    columns = ["mode", "method", "seed", "retention"]
    frames = []
    for (mode, method), runs in last.groupby(["mode", "method"], sort=False):
        means = runs.groupby(["role", "beta"])[["retention", "adaptation"]].mean()
        reported, selection = means.loc["report"], means.loc["selection"]
        pairs = []
        for below, above in itertools.pairwise(sorted(reported.index)):
            excess, next_excess = reported.loc[[below, above], "adaptation"] - MATCHED_ADAPTATION
            if excess * next_excess <= 0 and excess != next_excess:
                weight = excess / (excess - next_excess)
                ends = selection["retention"].loc[[below, above]]
                pairs.append(((1 - weight) * ends[below] + weight * ends[above], below, above, weight))
        if pairs:
            _, below, above, weight = max(pairs)
            seeds = runs[runs["role"] == "report"].set_index(["beta", "seed"])[["retention", "adaptation"]]
            mixed = (1 - weight) * seeds.loc[below] + weight * seeds.loc[above]
            rise = reported.loc[above] - reported.loc[below]
            missing = MATCHED_ADAPTATION - mixed["adaptation"]
            retention = mixed["retention"] + rise["retention"] / rise["adaptation"] * missing
            frames.append(retention.rename("retention").reset_index().assign(mode=mode, method=method))
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)
