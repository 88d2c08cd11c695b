"""Appendix B's claim of the expected update, judged on the recovery that the finite-group lab measured."""

from __future__ import annotations

import pandas as pd

from bandit.finite_group.report import POOLED
from bandit.finite_group.score import slope_table
from cokl.support.statistics import with_spread
from cokl.support.verdicts import Claim, Verdict

TOLERANCE = 0.05
"""How far from 1 a slope may be and still be the prediction's."""


def judge(recovery: pd.DataFrame) -> list[Claim]:
    """On CoKL's fresh, filtered groups at the first mu, where the paper proves it; empty if none were measured.

    Held if the slope's 95% interval lies within the tolerance of 1, not held if it lies outside, else undecided.
    """
    slopes = slope_table(recovery, POOLED)
    slopes = slopes[(slopes["method"] == "cokl") & (slopes["groups"] == "fresh")]
    slopes = slopes[slopes["optimizer_steps"] == slopes["optimizer_steps"].min()]
    claims = []
    for row in slopes.to_dict("records"):
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
