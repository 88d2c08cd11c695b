"""Appendix B's claim of the expected update, and what finite groups do to trained policies, judged on the lab's tables.

What is measured beside the recovery was declared after earlier runs of the lab had been seen.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import pandas as pd

from bandit.finite_group.plan import EXACT
from bandit.finite_group.score import PAPER_PASSES, POOLED, slope_table, slopes_of_seeds, without_diverged_runs
from cokl.support.statistics import with_spread
from cokl.support.verdicts import Claim, Measurement, Unit, Verdict, judged

TOLERANCE = 0.05
"""How far from 1 a slope may be and still be the prediction's."""


def judge(recovery: pd.DataFrame) -> list[Claim]:
    """On CoKL's fresh, filtered groups at the first mu, where the paper proves it; empty if none were measured.

    Held if the slope's 95% interval lies within the tolerance of 1, not held if it lies outside, else undecided.
    """
    claims = []
    for row in _slopes(recovery):
        slope = with_spread(row["slope"], row["slope_interval"], 4)
        distance, half_width = abs(row["slope"] - 1), row["slope_interval"]
        verdict: Verdict = "undecided"
        if distance + half_width <= TOLERANCE:
            verdict = "held"
        elif distance - half_width > TOLERANCE:
            verdict = "not held"
        claims.append(
            Claim(
                "Finite groups add the one-sided recovery -(1 - Z)^G grad log Z to CoKL's expected gradient",
                "Appendix B, below Eq. 12",
                f"slope of the measured on the predicted pressure at beta {row['beta']:g} {slope}, over all G, steps "
                f"and clusters; {row['within_noise']:.1%} of {row['rows']} measurements within their noise",
                verdict,
            )
        )
    return claims


def recovered(recovery: pd.DataFrame) -> Claim:
    """The first claim in a few words; without a verdict where nothing was measured."""
    statement = "Finite groups add the recovery of Appendix B"
    for claim, row in zip(judge(recovery), _slopes(recovery), strict=True):
        slope = with_spread(row["slope"], row["slope_interval"], 3)
        return Claim(statement, "", f"{slope} times R_G's prediction", claim.verdict)
    return Claim(statement, "", "not measured", None)


def of_policies(metrics: pd.DataFrame) -> list[Claim]:
    """What finite groups and caching do to CoKL at the largest coefficient; each claim where its runs are there.

    Differences are paired by seed, at the last step and the first mu unless stated otherwise. Caching and mu are judged
    at the group size nearest to the paper's 8, caching also at the evaluated step nearest to the paper's passes.
    """
    runs = without_diverged_runs(metrics)
    runs = runs[(runs["method"] == "cokl") & (runs["beta"] == runs["beta"].max()) & (runs["step"] > 0)]
    first, final = runs["optimizer_steps"].min(), runs["step"].max()
    fresh_ones = runs[runs["groups"] == "fresh"]
    sizes = sorted(fresh_ones.loc[fresh_ones["optimizer_steps"] == first, "group_size"].unique())
    if not sizes:
        return []
    eight = min(sizes, key=lambda size: abs(size - 8))
    passes = runs[runs["optimizer_steps"] == first].drop_duplicates("step").set_index("step")["passes"]
    near = (passes - PAPER_PASSES).abs().idxmin()

    def of(column: str, groups: str, size: float = math.inf, mu: int = first, step: Any = final) -> pd.Series:
        kept = (runs["groups"] == groups) & (runs["group_size"] == size) & (runs["optimizer_steps"] == mu)
        return runs[kept & (runs["step"] == step)].set_index("seed")[column]

    def caching_beyond_groups(step: Any) -> pd.Series:
        fresh, cached = (of("conditional_kl", groups, eight, step=step) for groups in ("fresh", "cached"))
        return (cached - fresh) - (fresh - of("conditional_kl", EXACT, step=step))

    def beside_exact(name: str, column: str, size: float, unit: Unit) -> list[Measurement]:
        beyond = of(column, "fresh", size) - of(column, EXACT)
        return [Measurement.of(f"G = {size:g}", f"{name} minus the exact objective's", beyond, unit)]

    corrected = [beside_exact("correctness", "p_correct", size, "probability") for size in sizes]
    claims = [
        judged(
            "Policies trained with finite groups end more correct than with the exact objective",
            "beyond the paper: Appendix B speaks of the expected update",
            corrected[0],
            corrected[1:],
        ),
        judged(
            "Even the largest groups end with more conditional KL than the exact objective",
            "beyond the paper",
            beside_exact("conditional KL", "conditional_kl", sizes[-1], "nats"),
        ),
    ]
    costs = (
        ("less", -1, near, f"after {passes[near]:.1f} passes", "finite groups' cost minus caching's"),
        ("more", 1, final, "at the end of the run", "caching's cost minus finite groups'"),
    )
    for more, sign, step, when, what in costs:
        beyond = sign * caching_beyond_groups(step).dropna()
        if len(beyond):
            where = f"G = {eight:g}, {passes[step]:.1f} passes"
            claims.append(
                judged(
                    f"Caching the reference groups costs {more} conditional KL than finite groups do, {when}",
                    "beyond the paper",
                    [Measurement.of(where, what, beyond, "nats")],
                )
            )
    parts: tuple[tuple[str, str, Unit, int], ...] = (
        ("correctness", "p_correct", "probability", -1),
        ("conditional KL", "conditional_kl", "nats", 1),
    )
    for mu in sorted(set(fresh_ones["optimizer_steps"]) - {first}):
        claims.append(
            judged(
                f"With mu = {mu} policies end less correct and with more conditional KL",
                "beyond the paper",
                [
                    Measurement.of(
                        f"G = {eight:g}",
                        f"{name}, mu = {mu} minus {first}" if sign > 0 else f"{name}, mu = {first} minus {mu}",
                        sign * (of(column, "fresh", eight, mu) - of(column, "fresh", eight)),
                        unit,
                    )
                    for name, column, unit, sign in parts
                ],
            )
        )
    return claims


def of_slopes(recovery: pd.DataFrame) -> list[Claim]:
    """Where the recovery is the prediction's and where not: without the filter, and off-policy."""
    if recovery.empty:
        return []
    cokl, first = recovery[recovery["method"] == "cokl"], recovery["optimizer_steps"].min()
    cokl = cokl[cokl["beta"] == cokl["beta"].max()]
    claims = []
    unfiltered = cokl[(cokl["groups"] == "unfiltered") & (cokl["optimizer_steps"] == first)]
    if len(unfiltered):
        missing = 1 - slopes_of_seeds(unfiltered, "predicted")
        claims.append(
            judged(
                "Without the filter of the reference groups the recovery is smaller than predicted",
                "Appendix B, which requires the filter",
                [Measurement.of("unfiltered groups", "1 minus the slope", missing, "times the prediction")],
            )
        )
    fresh = cokl[cokl["groups"] == "fresh"]
    for mu, rows in fresh[fresh["optimizer_steps"] > first].groupby("optimizer_steps"):
        beyond, gated = (slopes_of_seeds(rows, name) - 1 for name in ("predicted", "predicted_at_rollout"))
        asked: dict[str, Any] = {"unit": "times the prediction", "margin": TOLERANCE, "equal": True}
        claims.append(
            judged(
                f"The recovery is the predicted one off-policy, too, with mu = {mu}",
                "beyond the paper: Appendix B says that it does not hold exactly off-policy",
                [Measurement.of("the policy's own gate", "slope minus 1", beyond, **asked)],
                [[Measurement.of("the gate of the policy that drew the rollouts", "slope minus 1", gated, **asked)]],
            )
        )
    return claims


def _slopes(recovery: pd.DataFrame) -> list[dict[Hashable, Any]]:
    """Of CoKL's fresh groups at the first mu, a row per coefficient."""
    if recovery.empty:
        return []
    slopes = slope_table(recovery, POOLED)
    slopes = slopes[(slopes["method"] == "cokl") & (slopes["groups"] == "fresh")]
    return slopes[slopes["optimizer_steps"] == slopes["optimizer_steps"].min()].to_dict("records")
