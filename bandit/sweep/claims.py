"""The claims of the paper's Results paragraph on the controlled experiment, judged on a finished sweep.

Spreads are standard deviations over seeds; intervals are 95% t-intervals of the paired difference over seeds.

Assumption beyond the paper: a method's matched coefficient is the one whose mean final correctness over seeds is
closest to 0.96; one coefficient per method, the same for all seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from bandit.engine.tables import coverage_column, method_label
from bandit.sweep.score import final_rows, matched_rows
from cokl.support.statistics import mean_and_half_width, with_spread

MATCHED_CORRECTNESS = 0.96
COLLAPSED = {"correctness above": 0.95, "coverage below": 0.15}


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, what was measured, and the verdict: held, not held, or not decided by these seeds."""

    statement: str
    measured: str
    verdict: Literal["held", "not held", "not decided"]


def judge(table: pd.DataFrame) -> list[Claim]:
    """Every claim that the sweep's methods allow to be judged: most need CoKL and another regularizer."""
    methods = set(table["method"])
    others = [m for m in table["method"].unique() if m not in ("reference", "none", "cokl")]
    claims = [_collapse(table)] if "none" in methods else []
    if "cokl" not in methods or not others:
        return claims
    coverage, coverage_correct, kl = _directions(table)
    for judgement, directions in (
        (_frontier, (coverage, kl)),
        (_matched, (coverage, coverage_correct, kl)),
        (_during_training, (coverage, kl)),
    ):
        claims += [judgement(table, others, *direction) for direction in directions]
    return claims


def _directions(table: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Column, name, and +1 where more is better or -1 where less is."""
    coverage = coverage_column(table)
    name = coverage.replace("_at_", "@")
    return [
        (coverage, name, 1),
        (f"{coverage}_correct", f"{name} under pi+", 1),
        ("conditional_kl", "conditional KL", -1),
    ]


def _collapse(table: pd.DataFrame) -> Claim:
    final = final_rows(table)
    means = final[final["method"] == "none"].mean(numeric_only=True)
    correctness, coverage = means["p_correct"], means[coverage_column(table)]
    return Claim(
        "Unregularized RL becomes correct and collapses onto few correct actions "
        f"(correctness above {COLLAPSED['correctness above']}, coverage below {COLLAPSED['coverage below']})",
        f"correctness {correctness:.4f}, coverage {coverage:.4f}",
        _verdict(bool(correctness > COLLAPSED["correctness above"] and coverage < COLLAPSED["coverage below"])),
    )


def _matched(table: pd.DataFrame, others: list[str], column: str, name: str, sign: int) -> Claim:
    """Held if the interval of every paired difference lies above zero, not held if a mean difference does not."""
    matched = final_rows(matched_rows(table))
    correctness = matched.groupby("method")["p_correct"].mean()
    final = matched.pivot(index="seed", columns="method", values=column)
    advantages = {other: sign * (final["cokl"] - final[other]) for other in others}
    closest = min(others, key=lambda other: advantages[other].mean())
    intervals = {other: mean_and_half_width(advantage) for other, advantage in advantages.items()}
    mean, half_width = intervals[closest]
    better = "higher" if sign > 0 else "lower"
    return Claim(
        f"At matched correctness, CoKL's {name} is {better} than every other regularizer's",
        f"CoKL {final['cokl'].mean():.3f}; next {method_label(closest)} {final[closest].mean():.3f}; "
        f"{better} by {with_spread(mean, half_width, 3)}, in {(advantages[closest] > 0).sum()} of {len(final)} seeds; "
        f"correctness {correctness.min():.3f} to {correctness.max():.3f}",
        _verdict(
            all(mean > 0 for mean, _ in intervals.values()),
            all(mean > half_width for mean, half_width in intervals.values()),
        ),
    )


def _during_training(table: pd.DataFrame, others: list[str], column: str, name: str, sign: int) -> Claim:
    trained = matched_rows(table).query("step > 0")
    curves = sign * trained.pivot_table(index="step", columns="method", values=column)
    ahead = curves["cokl"] > curves[others].max(axis=1)
    behind = ", ".join(str(step) for step in ahead.index[~ahead])
    return Claim(
        f"At matched correctness, CoKL's {name} is {'highest' if sign > 0 else 'lowest'} throughout training",
        f"best at {ahead.sum()} of {len(ahead)} evaluated steps" + (f"; not at step {behind}" if behind else ""),
        _verdict(bool(ahead.all())),
    )


def _frontier(table: pd.DataFrame, others: list[str], column: str, name: str, sign: int) -> Claim:
    """Whether no other regularizer, at any coefficient, is as correct as a point of CoKL and better in `column`."""
    means = final_rows(table).groupby(["method", "beta"])[["p_correct", column]].mean()
    correctness, metric = means["p_correct"], sign * means[column]

    def dominates(one: tuple[str, float], other: tuple[str, float]) -> bool:
        return bool(correctness[one] >= correctness[other] and metric[one] >= metric[other])

    ours = [point for point in means.index if point[0] == "cokl"]
    theirs = [point for point in means.index if point[0] in others]
    beaten = [point for point in ours if any(dominates(other, point) for other in theirs)]
    worse = sum(any(dominates(point, other) for point in ours) for other in theirs)
    better = "higher" if sign > 0 else "lower"
    return Claim(
        "The other regularizers either sacrifice correctness or deviate more: none is as correct as CoKL with a "
        f"{better} {name}, whatever the coefficients",
        f"{len(ours) - len(beaten)} of CoKL's {len(ours)} coefficients are not dominated"
        + (f" (but {', '.join(f'{beta:g}' for _, beta in beaten)})" if beaten else "")
        + f"; CoKL dominates {worse} of the others' {len(theirs)} points",
        _verdict(not beaten),
    )


def _verdict(holds: bool, certain: bool = True) -> Literal["held", "not held", "not decided"]:
    return "not held" if not holds else "held" if certain else "not decided"
