"""Appendix B's claim of the expected update, judged on the recovery that the finite-group lab measured."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd

from bandit.finite_group.score import POOLED, slope_table
from cokl.support.statistics import with_spread
from cokl.support.verdicts import Claim, Verdict

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


def _slopes(recovery: pd.DataFrame) -> list[dict[Hashable, Any]]:
    """Of CoKL's fresh groups at the first mu, a row per coefficient."""
    if recovery.empty:
        return []
    slopes = slope_table(recovery, POOLED)
    slopes = slopes[(slopes["method"] == "cokl") & (slopes["groups"] == "fresh")]
    return slopes[slopes["optimizer_steps"] == slopes["optimizer_steps"].min()].to_dict("records")
