"""What the paper claims of continual learning under task shift, judged in this lab on a finished shift table.

Every measurement is a mean over the reported seeds with its 95% t-interval, a difference paired by seed but for what a
score already compares with GRPO's, and is written so that the paper expects it to be positive. Each claim has one
primary measurement, chosen here before the on-policy tables were made, and secondary ones, which Holm's procedure
corrects for their number within the claim. Primary are, as the paper's experiments are, sampled groups: for the main
table each method at its own best coefficient, which the paper searches for its baselines; for the ablations and
analyses the coefficient at which the paper runs them, 1. Secondary are expectations, other coefficients, and "equal
adaptation", interpolated between neighbouring coefficients. A table of one mode alone has that mode's measurement as
its primary one.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from bandit.shift.config import PAPER_BETA
from bandit.shift.score import at, at_equal_adaptation, best_coefficients, final, label, main_rows
from cokl.support.statistics import mean_and_half_width
from cokl.support.verdicts import ALPHA, MINIMUM_SEEDS, Verdict, holm, p_value

NEGLIGIBLE = 1.0
"""Points of Overall; a gain whose interval ends below this is none. The paper's smallest lead is 1.40 points."""

VARIANTS = ("cokl", "cokl_floor", "cokl_without_term1", "cokl_without_term2")
"""What is no rival of CoKL's."""

BEST, EQUAL, PAPER = "best", "equal adaptation", f"beta {PAPER_BETA:g}"
"""Where methods are compared: each at its best coefficient, where every one adapts as much, all at the paper's."""


PAPER_CLAIMS = {
    "overall": ("CoKL has a higher Overall than every method that is no variant of it", "Main Results, main table"),
    "pattern": (
        f"At {PAPER}, CoKL has a higher Overall than replay (correct-only forward KL), retaining as much and adapting "
        "more",
        "Main Results, main table",
    ),
    "collapse": ("CoKL without term 1 retains less than half of what CoKL does", "Ablation of the loss structure"),
    "level": (
        f"Without term 1, CoKL at {PAPER} retains no less than GRPO without KL (0; the paper: 3.85)",
        "Ablation of the loss structure, its table",
    ),
    "term 2": (
        "Without term 2, CoKL adapts less (at equal adaptation: retains less)",
        "Ablation of the loss structure",
    ),
    "floor": (
        f"The correctness floor does not help CoKL: it gains less than {NEGLIGIBLE:g} point",
        "Batch-level correctness floor",
    ),
    "batches": ("Larger KL batches retain more", "KL batch analysis"),
    "beta": ("Beta trades off: a larger one retains more, a smaller one adapts more", "Sensitivity analysis"),
    "reverse": ("Reverse KLs forget more than forward KLs", "Main Results"),
    "drift": (
        "Forgetting is more drift within the correct answers than drift of the correctness mass",
        "Batch-level correctness floor",
    ),
}
"""What is judged, and where the paper claims it, all of it of language models."""


@dataclass(frozen=True)
class Measurement:
    """One mean: where it was taken, what it is, the half-width of its 95% interval, and over how many seeds.

    negligible: the claim is that the opposite is no larger than this, 0 for a claim of a positive difference.
    """

    where: str
    what: str
    mean: float
    half_width: float
    seeds: int
    unit: Literal["points", "nats"]
    negligible: float = 0.0

    @property
    def leaning(self) -> Literal["held", "not held"]:
        """What the measurement says if it is decided: held above -negligible, not held below."""
        return "held" if self.mean > -self.negligible else "not held"

    @property
    def p_value(self) -> float:
        """Two-sided, that the mean is -negligible."""
        return p_value(self.mean, self.half_width, self.seeds, -self.negligible)

    def __str__(self) -> str:
        digits = 1 if self.unit == "points" else 3
        interval = f"{self.mean:z.{digits}f} ± {self.half_width:.{digits}f} {self.unit}"
        return f"{self.where}: {self.what} {interval}"


@dataclass(frozen=True)
class JudgedClaim:
    """A claim of the paper and where it stands there, its primary measurement, and what else was measured for it."""

    statement: str
    where: str
    primary: Measurement
    secondary: tuple[Measurement, ...] = ()

    @property
    def judged(self) -> bool:
        """Whether there are seeds enough for a verdict."""
        return self.primary.seeds >= MINIMUM_SEEDS

    @property
    def verdicts(self) -> list[tuple[Measurement, Verdict]]:
        """Every measurement, the primary one first, with its own verdict: secondary ones are Holm-corrected."""
        decided = [self.primary.p_value <= ALPHA, *holm([other.p_value for other in self.secondary])]
        measured = (self.primary, *self.secondary)
        return [(one, one.leaning if sure else "undecided") for one, sure in zip(measured, decided, strict=True)]

    @property
    def verdict(self) -> Verdict | None:
        """The primary measurement's; depends, if a secondary one is decided the other way. None below four seeds."""
        if not self.judged:
            return None
        primary, *others = (verdict for _, verdict in self.verdicts)
        opposite = {"held": "not held", "not held": "held"}.get(primary)
        return "depends" if opposite in others else primary

    @property
    def counts(self) -> str:
        """How many secondary measurements say what."""
        verdicts = Counter(verdict for _, verdict in self.verdicts[1:])
        said = ", ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items()))
        return f"secondary: {said or 'none'}"

    def lines(self) -> list[str]:
        """A line per measurement, the primary one first, with verdicts where there are seeds enough."""
        kinds = ("primary", *("secondary" for _ in self.secondary))
        return [
            f"{kind}: {measured}" + (f" ({verdict})" if self.judged else "")
            for kind, (measured, verdict) in zip(kinds, self.verdicts, strict=True)
        ]


def judge(scored: pd.DataFrame) -> list[JudgedClaim]:
    """Every claim that the methods, modes, coefficients and KL batches of a scored table allow to be judged.

    Measurements are written in the order of preference: the first that the table has is the primary one.
    """
    views = _Views(scored)
    found = {
        "overall": [
            *views.over_the_best_rival("sampled"),
            *views.over_the_best_rival("exact"),
        ],
        "pattern": views.in_modes(PAPER, "cokl", "correct_forward_kl", ("overall", "retention", "adaptation")),
        "collapse": [
            *views.collapse("sampled", PAPER),
            *(m for mode, setting in _OTHERS for m in views.collapse(mode, setting)),
        ],
        "level": [
            measurement
            for mode in ("sampled", "exact")
            for measurement in views.level(mode, PAPER, "cokl_without_term1", "retention")
        ],
        "term 2": [
            *views.compare("sampled", PAPER, "cokl", "cokl_without_term2", "adaptation"),
            *(
                measurement
                for mode, setting in _OTHERS
                for measurement in views.compare(
                    mode, setting, "cokl", "cokl_without_term2", "retention" if setting == EQUAL else "adaptation"
                )
            ),
        ],
        "floor": [
            *views.compare("sampled", PAPER, "cokl", "cokl_floor", "overall", NEGLIGIBLE),
            *(
                measurement
                for mode, setting in _OTHERS
                for measurement in views.compare(
                    mode, setting, "cokl", "cokl_floor", "retention" if setting == EQUAL else "overall", NEGLIGIBLE
                )
            ),
        ],
        "batches": [*_batches(scored, "sampled"), *_batches(scored, "exact")],
        "beta": [
            *_coefficients(scored, "sampled"),
            *_coefficients(scored, "exact"),
        ],
        "reverse": [
            measurement
            for mode, setting in itertools.product(("sampled", "exact"), (BEST, EQUAL))
            for forward, reverse in (("forward_kl", "reverse_kl"), ("correct_forward_kl", "correct_reverse_kl"))
            for measurement in views.compare(mode, setting, forward, reverse, "retention")
        ],
        "drift": [
            *_drifts(scored, views, "sampled"),
            *_drifts(scored, views, "exact"),
        ],
    }
    return [
        JudgedClaim(*PAPER_CLAIMS[name], found[name][0], tuple(found[name][1:])) for name in PAPER_CLAIMS if found[name]
    ]


_OTHERS = (("sampled", BEST), ("sampled", EQUAL), ("exact", PAPER), ("exact", BEST), ("exact", EQUAL))
"""Where else an ablation is measured than in samples at the paper's coefficient."""


class _Views:
    """The reported seeds' final rows of a scored table in each mode and setting."""

    def __init__(self, scored: pd.DataFrame) -> None:
        self.best = best_coefficients(scored)
        selection = final(self.best.merge(scored[scored["role"] == "selection"]))
        self.chosen = selection.groupby(["mode", "method"])["overall"].mean()
        runs = main_rows(scored)[["mode", "method", "beta", "kl_prompts"]].drop_duplicates()
        self.rows = {
            BEST: final(at(scored, self.best)),
            EQUAL: at_equal_adaptation(scored),
            PAPER: final(at(scored, runs[runs["beta"] == PAPER_BETA])),
        }
        self.rivals = [m for m in scored["method"].unique() if m not in (*VARIANTS, "base")]

    def values(self, mode: str, setting: str, method: str, column: str) -> pd.Series:
        """A value per seed; empty where the table has none."""
        rows = self.rows[setting]
        return rows[(rows["mode"] == mode) & (rows["method"] == method)].set_index("seed")[column]

    def level(self, mode: str, setting: str, method: str, column: str) -> Iterator[Measurement]:
        """A score itself."""
        values = self.values(mode, setting, method, column)
        if len(values):
            yield _measured(f"{mode}, {setting}", f"{column} of {label(method)}", values)

    def compare(
        self, mode: str, setting: str, one: str, other: str, column: str, negligible: float = 0.0
    ) -> Iterator[Measurement]:
        """One method's score less another's."""
        values, others = (self.values(mode, setting, method, column) for method in (one, other))
        if len(values) and len(others):
            what = f"{column} of {label(one)} - {label(other)}"
            yield _measured(f"{mode}, {setting}", what, values - others, negligible=negligible)

    def in_modes(self, setting: str, one: str, other: str, columns: Iterable[str]) -> list[Measurement]:
        """The same for several scores, in samples and in expectations."""
        pairs = itertools.product(("sampled", "exact"), columns)
        return [m for mode, column in pairs for m in self.compare(mode, setting, one, other, column)]

    def over_the_best_rival(self, mode: str) -> Iterator[Measurement]:
        """CoKL's best Overall less that of the rival which is best on the selection seeds."""
        rivals = [rival for rival in self.rivals if (mode, rival) in self.chosen.index]
        if rivals and (mode, "cokl") in self.chosen.index:
            rival = max(rivals, key=lambda rival: self.chosen[mode, rival])
            (measured,) = self.compare(mode, BEST, "cokl", rival, "overall")
            yield dataclasses.replace(measured, what=f"{measured.what}, the best on the selection seeds")

    def collapse(self, mode: str, setting: str) -> Iterator[Measurement]:
        """Retention below zero counts as none, so that CoKL has to retain something."""
        ours, without = (self.values(mode, setting, method, "retention") for method in ("cokl", "cokl_without_term1"))
        if len(ours) and len(without):
            what = "half of CoKL's retention - CoKL w/o term 1's, if positive"
            yield _measured(f"{mode}, {setting}", what, ours / 2 - without.clip(lower=0))


def _measured(
    where: str, what: str, values: pd.Series, unit: Literal["points", "nats"] = "points", negligible: float = 0.0
) -> Measurement:
    return Measurement(where, what, *mean_and_half_width(values), len(values), unit, negligible)


def _batches(scored: pd.DataFrame, mode: str) -> Iterator[Measurement]:
    """CoKL wherever it was trained with several KL batches: retention with the largest less that with the smallest."""
    ours = final(scored[(scored["method"] == "cokl") & (scored["role"] == "report") & (scored["mode"] == mode)])
    for beta, runs in ours.groupby("beta", sort=False):
        small, large = runs["kl_prompts"].min(), runs["kl_prompts"].max()
        if small < large:
            retention = runs.pivot(index="seed", columns="kl_prompts", values="retention")
            what = f"retention with {large:g} - with {small:g} prompts at beta {beta:g}"
            yield _measured(mode, what, retention[large] - retention[small])


def _coefficients(scored: pd.DataFrame, mode: str) -> Iterator[Measurement]:
    """CoKL at the ends of its grid."""
    main = main_rows(final(scored))
    runs = main[(main["method"] == "cokl") & (main["role"] == "report") & (main["mode"] == mode)]
    low, high = runs["beta"].min(), runs["beta"].max()
    if not low < high:
        return
    for column, sign in (("retention", 1), ("adaptation", -1)):
        ends = runs.pivot(index="seed", columns="beta", values=column)
        one, other = (high, low) if sign > 0 else (low, high)
        yield _measured(mode, f"{column} at beta {one:g} - at {other:g}", ends[one] - ends[other])


def _drifts(scored: pd.DataFrame, views: _Views, mode: str) -> Iterator[Measurement]:
    """Correct drift less mass drift: of GRPO at the end and at the first evaluated step, of CoKL at the end."""
    reported = scored[scored["role"] == "report"]
    grpo = reported[(reported["mode"] == mode) & (reported["method"] == "none") & (reported["step"] > 0)]
    for step in sorted(set(grpo["step"].agg(["min", "max"]).dropna()), reverse=True):
        rows = grpo[grpo["step"] == step].set_index("seed")
        what = f"correct - mass drift of GRPO w/o KL at step {step:g}"
        yield _measured(mode, what, rows["correct_drift"] - rows["mass_drift"], "nats")
    correct, mass = (views.values(mode, BEST, "cokl", f"{drift}_drift") for drift in ("correct", "mass"))
    if len(correct):
        yield _measured(f"{mode}, {BEST}", "correct - mass drift of CoKL", correct - mass, "nats")
