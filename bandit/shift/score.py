"""Scores of the task-shift lab: dual-anchor normalization (E.5), and the coefficients at which methods are compared.

A shift table has a row per evaluated step: seed, mode, method, beta, step, prior_correct, new_correct, prior_pass_at_k,
conditional_kl, mass_drift, correct_drift, incorrect_drift, zero_correct_rate, role and kl_prompts. Method "base" is the
policy before the shift (step 0), "none" is GRPO without KL; role is "report", or "selection" for the seeds that only
choose coefficients.

Assumption beyond the paper: the anchors are means over seeds, and each seed's score is that of the linearised ratio.
So scores average to the ratio of means, intervals include the spread of the anchors, and a seed that forgets little has
no extreme score.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial

import pandas as pd

from bandit.engine.divergence import diverged, divergence_note, without_diverged
from bandit.engine.two_tasks.plan import RUN
from cokl import methods
from cokl.metrics import dual_anchor
from cokl.support.errors import InputError
from cokl.support.statistics import mean_and_half_width

MATCHED_ADAPTATION = 90.0
"""The common target: new-task correctness that is 10% of GRPO's gain short of GRPO's."""

MATCH_TOLERANCE = 5.0
"""A method whose adaptation on the selection seeds is further from the target has missed the match."""

ANCHORS = ("base", "none")

label = partial(methods.label, own={"base": "Base"})
"""How tables and figures call a method."""

_SCORES = (("retention", "prior_correct", "none", "base"), ("adaptation", "new_correct", "base", "none"))


def final_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of each run's last step."""
    return table[table["step"] == table.groupby([*RUN, "role", "seed"], dropna=False)["step"].transform("max")]


def score(table: pd.DataFrame) -> pd.DataFrame:
    """The shift table with columns retention, adaptation and their mean, overall; base 100 and GRPO 0 for retention.

    Seeds of one role are normalized by their own anchors: choosing on the selection seeds sees no reported seed.
    Reported scores have passed `undetermined_as_nan`. Coefficients with a diverged seed are left out.
    Raises InputError if an anchor is missing or diverged, or the anchors coincide.
    """
    table = without_diverged_runs(table).reset_index(drop=True)
    scored, last = table.copy(), final_rows(table)
    seeds = ["mode", "role", "seed"]
    anchors = {method: last[last["method"] == method].set_index(seeds) for method in ANCHORS}
    of_row = pd.MultiIndex.from_frame(table[seeds])
    for name, column, zero, hundred in _SCORES:
        ends = {"zero": anchors[zero][column].reindex(of_row), "hundred": anchors[hundred][column].reindex(of_row)}
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


def without_diverged_runs(table: pd.DataFrame) -> pd.DataFrame:
    """The table without the coefficients with a diverged seed. Raises InputError if GRPO w/o KL is one of them."""
    if anchors_diverged(table):
        raise InputError(f"GRPO w/o KL, which all scores relate to, diverged: {diverged_note(table)}")
    return without_diverged(table, "prior_correct", RUN)


def anchors_diverged(table: pd.DataFrame) -> bool:
    """Whether the base model or GRPO w/o KL, which all scores relate to, diverged for some seed."""
    return bool(diverged(table, "prior_correct")["method"].isin(ANCHORS).any())


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


def main_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the coefficient search, with which the selection seeds were trained too; not the KL-batch sweep."""
    return table.merge(table.loc[table["role"] == "selection", RUN].drop_duplicates(), on=RUN)


def best_coefficients(scored: pd.DataFrame) -> pd.DataFrame:
    """For each mode and method the coefficient with the highest Overall on the selection seeds.

    Columns: those of RUN; edge, whether it is the grid's smallest or largest; missed, always False.
    """
    means = _selection_means(scored)
    return _chosen(means, means["overall"]).assign(missed=False)


def matched_coefficients(scored: pd.DataFrame) -> pd.DataFrame:
    """For each mode and regularized method the coefficient whose adaptation on the selection seeds is closest to 90.

    Columns: those of RUN; edge; missed, whether it is further from the target than the tolerance.
    """
    means = _selection_means(scored)
    means = means[~means["method"].isin(ANCHORS)]
    distance = (means["adaptation"] - MATCHED_ADAPTATION).abs()
    return _chosen(means.assign(missed=distance > MATCH_TOLERANCE), -distance)


def reported_rows(scored: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """The reported seeds' rows of the chosen coefficients, all steps, in the chosen order."""
    return chosen.merge(scored[scored["role"] == "report"], on=RUN)


def settings(scored: pd.DataFrame) -> pd.DataFrame:
    """The reported seeds' rows at each method's best and matched coefficient; column setting says which."""
    chosen = {"best": best_coefficients(scored), "matched": matched_coefficients(scored)}
    return pd.concat(
        [reported_rows(scored, rows).assign(setting=name) for name, rows in chosen.items()], ignore_index=True
    )


def at_equal_adaptation(scored: pd.DataFrame, measures: Sequence[str] = ("retention",)) -> pd.DataFrame:
    """The reported seeds' `measures` where their mean adaptation is 90, between two neighbouring coefficients.

    If the mean passes 90 between several pairs, the pair counts that retains most on the selection seeds. A seed's
    measure is its own value, moved to an adaptation of 90 along the line through the means, so that intervals include
    the noise of its adaptation. A method that never passes 90 has no rows. Columns: mode, method, beta_below,
    beta_above, seed, and the measures.
    """
    last = main_rows(final_rows(scored))
    measured = list(measures)
    columns = ["mode", "method", "beta_below", "beta_above", "seed", *measured]
    frames = []
    for (mode, method), runs in last.groupby(["mode", "method"], sort=False):
        means = runs.groupby(["role", "beta"])[list({*measured, "retention", "adaptation"})].mean()
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
            seeds = runs[runs["role"] == "report"].set_index(["beta", "seed"])[[*measured, "adaptation"]]
            mixed = (1 - weight) * seeds.loc[below] + weight * seeds.loc[above]
            rise = reported.loc[above] - reported.loc[below]
            missing = MATCHED_ADAPTATION - mixed["adaptation"]
            at_target = {name: mixed[name] + rise[name] / rise["adaptation"] * missing for name in measured}
            pair = {"mode": mode, "method": method, "beta_below": below, "beta_above": above}
            frames.append(pd.DataFrame(at_target).reset_index().assign(**pair))
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


def _selection_means(scored: pd.DataFrame) -> pd.DataFrame:
    rows = main_rows(final_rows(scored[scored["role"] == "selection"]))
    if rows.empty:
        raise InputError("the shift table has no selection seeds, on which coefficients are chosen")
    return rows.groupby(RUN, sort=False)[["retention", "adaptation", "overall"]].mean().reset_index()


def _chosen(means: pd.DataFrame, merit: pd.Series) -> pd.DataFrame:
    """Per mode and method the row of `means` with the highest merit, and whether it lies at an edge of its grid."""
    groups = means.groupby(["mode", "method"], sort=False)["beta"]
    low, high = groups.transform("min"), groups.transform("max")
    edge = (low < high) & ((means["beta"] == low) | (means["beta"] == high))
    best = merit.groupby([means["mode"], means["method"]], sort=False).idxmax()
    kept = [*RUN, "edge", *(["missed"] if "missed" in means else [])]
    return means.assign(edge=edge).loc[best, kept].reset_index(drop=True)
