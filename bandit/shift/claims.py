"""What the paper claims of continual learning under task shift, judged on a finished shift table.

Every measurement is a difference paired by seed, over the reported seeds, with its 95% t-interval, and is written so
that the paper expects it to be positive. It is taken in each mode, with each method at its own best coefficient
("best"), at equal adaptation, interpolated between neighbouring coefficients, and, for variants of CoKL, at CoKL's own
best coefficient ("CoKL's beta").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from bandit.shift.score import at, at_equal_adaptation, best_coefficients, final, label, main_rows
from cokl.support.statistics import mean_and_half_width

NEGLIGIBLE = 1.0
"""Points of Overall; a gain whose interval ends below this is none. The paper's smallest lead is 1.40 points."""

EQUAL = "equal adaptation"
"""The setting in which every method adapts as much."""

Verdict = Literal["confirmed", "contradicted", "depends", "not decided"]


@dataclass(frozen=True)
class Measurement:
    """One difference: where it was taken, what it is, its mean and the half-width of its 95% interval.

    negligible: the claim is that the opposite is no larger than this, 0 for a claim of a positive difference.
    """

    where: str
    what: str
    mean: float
    half_width: float
    unit: Literal["points", "nats"]
    negligible: float = 0.0

    @property
    def verdict(self) -> Literal["confirmed", "contradicted", "not decided"]:
        """Confirmed if the whole interval lies above -negligible, contradicted if it lies below 0."""
        if self.mean - self.half_width > -self.negligible:
            return "confirmed"
        return "contradicted" if self.mean + self.half_width < 0 else "not decided"

    def __str__(self) -> str:
        digits = 1 if self.unit == "points" else 3
        interval = f"{self.mean:z.{digits}f} ± {self.half_width:.{digits}f} {self.unit}"
        return f"{self.where}: {self.what} {interval} ({self.verdict})"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and everything measured for it."""

    statement: str
    measurements: tuple[Measurement, ...]

    @property
    def verdict(self) -> Verdict:
        """What the decided measurements agree on; depends, if some confirm and others contradict."""
        decided = {measurement.verdict for measurement in self.measurements} - {"not decided"}
        if len(decided) > 1:
            return "depends"
        return next(iter(decided), "not decided")

    @property
    def counts(self) -> str:
        """How many measurements say what."""
        verdicts = Counter(measurement.verdict for measurement in self.measurements)
        return ", ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items()))


def judge(scored: pd.DataFrame) -> list[Claim]:
    """Every claim that the methods, modes and KL batches of a scored table allow to be judged."""
    views = list(_views(scored))
    claims = [
        Claim(
            "CoKL keeps the prior task better than replay (correct-only forward KL), at a better Overall",
            tuple(
                _compare(view, "cokl", "correct_forward_kl", column)
                for view in views
                for column in (("overall", "retention") if view.setting == "best" else ("retention",))
                if view.setting != "CoKL's beta" and view.has("cokl", "correct_forward_kl")
            ),
        ),
        Claim(
            "Without term 1, CoKL collapses: it retains less than half of what CoKL retains",
            tuple(_collapse(view) for view in views if view.has("cokl", "cokl_without_term1")),
        ),
        Claim(
            "Without term 2, CoKL adapts less (at equal adaptation: retains less)",
            tuple(
                _compare(view, "cokl", "cokl_without_term2", "retention" if view.setting == EQUAL else "adaptation")
                for view in views
                if view.has("cokl", "cokl_without_term2")
            ),
        ),
        Claim(
            f"The correctness floor does not help CoKL: it gains less than {NEGLIGIBLE:g} point",
            tuple(
                _compare(view, "cokl", "cokl_floor", "retention" if view.setting == EQUAL else "overall", NEGLIGIBLE)
                for view in views
                if view.has("cokl", "cokl_floor")
            ),
        ),
        Claim("Larger KL batches retain more", tuple(_batches(scored))),
        Claim("Beta trades off: a larger one retains more, a smaller one adapts more", tuple(_coefficients(scored))),
        Claim(
            "Reverse KLs forget more than forward KLs",
            tuple(
                _compare(view, forward, reverse, "retention")
                for view in views
                for forward, reverse in (("forward_kl", "reverse_kl"), ("correct_forward_kl", "correct_reverse_kl"))
                if view.setting != "CoKL's beta" and view.has(forward, reverse)
            ),
        ),
        Claim(
            "Forgetting is more drift within the correct answers than drift of the correctness mass",
            tuple(_drifts(scored, views)),
        ),
    ]
    return [claim for claim in claims if claim.measurements]


@dataclass(frozen=True)
class _View:
    """The reported seeds' final rows in one mode and setting: a table (seed, method) for each column."""

    mode: str
    setting: str
    rows: pd.DataFrame

    def has(self, *methods: str) -> bool:
        return set(methods) <= set(self.rows["method"])

    def values(self, method: str, column: str) -> pd.Series:
        """A value per seed."""
        return self.rows[self.rows["method"] == method].set_index("seed")[column]

    @property
    def where(self) -> str:
        return f"{self.mode}, {self.setting}"


def _views(scored: pd.DataFrame) -> Iterator[_View]:
    best = best_coefficients(scored)
    views = {
        "best": final(at(scored, best)),
        EQUAL: at_equal_adaptation(scored),
        "CoKL's beta": final(at(scored, _at_the_beta_of_cokl(scored, best))),
    }
    for mode in scored["mode"].unique():
        for setting, rows in views.items():
            yield _View(str(mode), setting, rows[rows["mode"] == mode])


def _at_the_beta_of_cokl(scored: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    """Every regularized method's main run at the coefficient that is CoKL's best."""
    ours = best[best["method"] == "cokl"][["mode", "beta"]]
    runs = main_rows(scored)[["mode", "method", "beta", "kl_prompts"]].drop_duplicates()
    return runs.merge(ours, on=["mode", "beta"])


def _compare(view: _View, one: str, other: str, column: str, negligible: float = 0.0) -> Measurement:
    difference = view.values(one, column) - view.values(other, column)
    return Measurement(
        view.where, f"{column} of {label(one)} - {label(other)}", *mean_and_half_width(difference), "points", negligible
    )


def _collapse(view: _View) -> Measurement:
    """Retention below zero counts as none, so that CoKL has to retain something."""
    ours, without = (view.values(method, "retention") for method in ("cokl", "cokl_without_term1"))
    difference = ours / 2 - without.clip(lower=0)
    what = "half of CoKL's retention - CoKL w/o term 1's, if positive"
    return Measurement(view.where, what, *mean_and_half_width(difference), "points")


def _batches(scored: pd.DataFrame) -> Iterator[Measurement]:
    """CoKL wherever it was trained with several KL batches: retention with the largest less that with the smallest."""
    ours = final(scored[(scored["method"] == "cokl") & (scored["role"] == "report")])
    for (mode, beta), runs in ours.groupby(["mode", "beta"], sort=False):
        small, large = runs["kl_prompts"].min(), runs["kl_prompts"].max()
        if small < large:
            retention = runs.pivot(index="seed", columns="kl_prompts", values="retention")
            what = f"retention with {large:g} - with {small:g} prompts at beta {beta:g}"
            yield Measurement(str(mode), what, *mean_and_half_width(retention[large] - retention[small]), "points")


def _coefficients(scored: pd.DataFrame) -> Iterator[Measurement]:
    """CoKL at the ends of its grid."""
    main = main_rows(final(scored))
    ours = main[(main["method"] == "cokl") & (main["role"] == "report")]
    for mode, runs in ours.groupby("mode", sort=False):
        low, high = runs["beta"].min(), runs["beta"].max()
        if low == high:
            continue
        for column, sign in (("retention", 1), ("adaptation", -1)):
            ends = runs.pivot(index="seed", columns="beta", values=column)
            one, other = (high, low) if sign > 0 else (low, high)
            what = f"{column} at beta {one:g} - at {other:g}"
            yield Measurement(str(mode), what, *mean_and_half_width(ends[one] - ends[other]), "points")


def _drifts(scored: pd.DataFrame, views: list[_View]) -> Iterator[Measurement]:
    """Correct drift less mass drift: of GRPO at the first evaluated step and at the end, of CoKL at the end."""
    reported = scored[scored["role"] == "report"]
    for view in views:
        if view.setting != "best":
            continue
        grpo = reported[(reported["mode"] == view.mode) & (reported["method"] == "none") & (reported["step"] > 0)]
        for step in np.unique([grpo["step"].min(), grpo["step"].max()]):
            rows = grpo[grpo["step"] == step]
            difference = rows["correct_drift"] - rows["mass_drift"]
            what = f"correct - mass drift of GRPO w/o KL at step {step}"
            yield Measurement(view.mode, what, *mean_and_half_width(difference), "nats")
        if view.has("cokl"):
            difference = view.values("cokl", "correct_drift") - view.values("cokl", "mass_drift")
            yield Measurement(view.where, "correct - mass drift of CoKL", *mean_and_half_width(difference), "nats")
