"""What the paper claims of continual learning under task shift, judged in this lab on a finished shift table.

Every measurement is a mean over the reported seeds with its 95% t-interval, a difference paired by seed but for what a
score already compares with GRPO's, and is written so that the paper expects it to be positive. The rules from
measurements to verdicts are in `cokl.support.verdicts`. Primary are, as the paper's experiments are, sampled groups, at
the coefficients of E.3: 1 for CoKL, its ablations and the forward KLs, 0.001 for the reverse KLs. What is compared at
each method's own best coefficient is a claim beside it. Secondary are expectations, other coefficients, and "equal
adaptation", interpolated between neighbouring coefficients. A table of one mode alone has that mode's measurement as
its primary one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pandas as pd

from bandit.shift.config import PAPER_BETA
from bandit.shift.score import at, at_equal_adaptation, best_coefficients, final_rows, label, main_rows
from cokl.support.statistics import with_spread
from cokl.support.verdicts import Claim, Measurement, judged

NEGLIGIBLE = 1.0
"""Points of Overall; a gain whose interval ends below this is none. The paper's smallest lead is 1.40 points."""

EQUIVALENT = 5.0
"""Points of a score; two methods whose difference is shown to be smaller are as good as each other."""

VARIANTS = ("cokl", "cokl_floor", "cokl_without_term1", "cokl_without_term2")
"""What is no rival of CoKL's."""

FORWARD, REVERSE = ("forward_kl", "correct_forward_kl"), ("reverse_kl", "correct_reverse_kl")
REVERSE_BETA = 1e-3
"""The coefficient of the reverse KLs in the paper's tables (E.3)."""

SEARCHED = {**dict.fromkeys(FORWARD, (1.0, 0.1, 10.0)), **dict.fromkeys(REVERSE, (1e-3, 1e-2, 1.0))}
"""The coefficients that E.3 searches over for its baselines, the chosen one first."""

KL_BATCHES = (8, 16, 32)
"""Prompts per update in the paper's KL batch analysis."""

BETAS = (0.1, 10.0)
"""The ends of the paper's sensitivity analysis."""

BEST, EQUAL, PAPER = "best", "equal adaptation", f"beta {PAPER_BETA:g}"
"""Where methods are compared: each at its best coefficient, where every one adapts as much, all at CoKL's in E.3."""
E3 = "E.3's coefficients"
"""1 for CoKL, its ablations and the forward KLs, 0.001 for the reverse KLs."""


PAPER_CLAIMS = {
    "overall": (
        f"At {E3} CoKL has a higher Overall than each of the paper's four baselines with a KL",
        "Main Results, main table",
    ),
    "tuned": (
        "Each at its best coefficient, CoKL has a higher Overall than every method that is no variant of it",
        "Main Results; a search over CoKL's own coefficient and other regularizers are beyond the paper",
    ),
    "pattern": (
        f"At {PAPER}, CoKL has a higher Overall than replay (correct-only forward KL), retaining as much and adapting "
        "more",
        "Main Results, main table",
    ),
    "reverse": (f"At {E3} reverse KLs forget more than forward KLs", "Main Results"),
    "constrained": (f"At {E3} forward KLs adapt less than reverse KLs", "Main Results"),
    "tuned reverse": (
        "Each at its best coefficient, reverse KLs forget more than forward KLs",
        "beyond the paper: Main Results at other coefficients than E.3's",
    ),
    "search": (
        "Of E.3's coefficients forward KLs have the highest Overall at 1, reverse KLs at 0.001",
        "E.3, search over the baselines' coefficients",
    ),
    "dynamics": (
        f"At {PAPER} CoKL ends with the prior task better than GRPO without KL and the new one as well",
        "E.6, training dynamics",
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
    "batches": ("Larger KL batches retain more, 32 against 8 prompts", "KL batch analysis"),
    "larger batches": (
        "KL batches above the paper's retain more, against 8 prompts",
        "beyond the paper: KL batch analysis",
    ),
    "beta": (
        "Beta trades off between 0.1 and 10: the larger one retains more, the smaller one adapts more",
        "Sensitivity analysis",
    ),
    "zero-correct": (f"At {PAPER} most of CoKL's rollout groups hold a correct response", "E.4"),
    "drift": (
        "Forgetting is more drift within the correct answers than drift of the correctness mass",
        "Batch-level correctness floor",
    ),
}
"""What is judged, and where the paper claims it, all of it of language models."""


_PARTS = {
    "overall": 4,
    "pattern": 3,
    "reverse": 2,
    "constrained": 2,
    "tuned reverse": 2,
    "search": 8,
    "dynamics": 2,
    "beta": 2,
}
"""How many measurements a claim needs together, where it is more than one: with fewer it is not judged."""


def judge(scored: pd.DataFrame) -> list[Claim]:
    """Every claim that the methods, modes, coefficients and KL batches of a scored table allow to be judged.

    Measurements are listed in the order of preference: the first that the table has is the primary one.
    """
    views = _Views(scored)
    modes = ("sampled", "exact")
    ablated = [(mode, setting) for mode in modes for setting in (PAPER, BEST, EQUAL)]
    pairs = tuple(zip(FORWARD, REVERSE, strict=True))
    measured: dict[str, Iterable[Sequence[Measurement]]] = {
        "overall": (
            [m for rival in (*FORWARD, *REVERSE) for m in views.compare(mode, E3, "cokl", rival, "overall")]
            for mode in modes
        ),
        "tuned": (list(views.over_the_best_rival(mode)) for mode in modes),
        "pattern": (
            [
                *views.compare(mode, PAPER, "cokl", "correct_forward_kl", "overall"),
                *views.compare(mode, PAPER, "cokl", "correct_forward_kl", "retention", EQUIVALENT, equal=True),
                *views.compare(mode, PAPER, "cokl", "correct_forward_kl", "adaptation"),
            ]
            for mode in modes
        ),
        "reverse": ([m for pair in pairs for m in views.compare(mode, E3, *pair, "retention")] for mode in modes),
        "constrained": (
            [m for forward, reverse in pairs for m in views.compare(mode, E3, reverse, forward, "adaptation")]
            for mode in modes
        ),
        "tuned reverse": (
            [m for pair in pairs for m in views.compare(mode, setting, *pair, "retention")]
            for mode in modes
            for setting in (BEST, EQUAL)
        ),
        "search": ([m for method in SEARCHED for m in views.searched(mode, method)] for mode in modes),
        "dynamics": (
            [
                *views.level(mode, PAPER, "cokl", "retention"),
                *views.compare(mode, PAPER, "cokl", "none", "adaptation", EQUIVALENT, equal=True),
            ]
            for mode in modes
        ),
        "collapse": (list(views.collapse(mode, setting)) for mode, setting in ablated),
        "level": (list(views.level(mode, PAPER, "cokl_without_term1", "retention")) for mode in modes),
        "term 2": (
            list(
                views.compare(
                    mode, setting, "cokl", "cokl_without_term2", "retention" if setting == EQUAL else "adaptation"
                )
            )
            for mode, setting in ablated
        ),
        "floor": (
            list(
                views.compare(
                    mode,
                    setting,
                    "cokl",
                    "cokl_floor",
                    "retention" if setting == EQUAL else "overall",
                    NEGLIGIBLE,
                )
            )
            for mode, setting in ablated
        ),
        "batches": (
            [m]
            for mode in modes
            for larger, smaller in ((32, 8), (16, 8), (32, 16))
            for m in _batches(scored, mode, larger, smaller)
        ),
        "larger batches": (
            [m]
            for mode in modes
            for larger in sorted(set(scored["kl_prompts"]) - set(range(max(KL_BATCHES) + 1)), reverse=True)
            for m in _batches(scored, mode, larger, min(KL_BATCHES))
        ),
        "beta": (list(_coefficients(scored, mode)) for mode in modes),
        "zero-correct": (list(_zero_correct(scored, mode)) for mode in modes),
        "drift": ([m] for mode in modes for m in _drifts(scored, views, mode)),
    }
    claims = []
    for name, groups in measured.items():
        complete = [
            group
            for group in groups
            if len(group) == _PARTS.get(name, 1) and all(math.isfinite(part.mean) for part in group)
        ]
        if complete:
            claims.append(judged(*PAPER_CLAIMS[name], complete[0], complete[1:]))
    return claims


def balance(scored: pd.DataFrame, mode: str) -> Claim:
    """Whether CoKL has the best Overall, each method at its best coefficient, in a few words."""
    views = _Views(scored)
    statement = "CoKL has the best Overall"
    for lead in views.over_the_best_rival(mode):
        if math.isfinite(lead.mean):
            measured = (
                f"{with_spread(lead.mean, lead.half_width, 1)} points against {label(views.best_rival(mode) or '')}"
            )
            return replace(judged(statement, "", [lead]), measured=measured)
    return Claim(statement, "", "there are no scores to compare", None)


class _Views:
    """The reported seeds' final rows of a scored table in each mode and setting."""

    def __init__(self, scored: pd.DataFrame) -> None:
        self.best = best_coefficients(scored)
        selection = final_rows(self.best.merge(scored[scored["role"] == "selection"]))
        self.chosen = selection.groupby(["mode", "method"])["overall"].mean()
        runs = main_rows(scored)[["mode", "method", "beta", "kl_prompts"]].drop_duplicates()
        unregularized = runs["method"] == "none"
        in_e3 = runs["beta"] == runs["method"].map(dict.fromkeys(REVERSE, REVERSE_BETA)).fillna(PAPER_BETA)
        self.all = final_rows(at(scored, runs))
        self.rows = {
            BEST: final_rows(at(scored, self.best)),
            EQUAL: at_equal_adaptation(scored),
            PAPER: final_rows(at(scored, runs[(runs["beta"] == PAPER_BETA) | unregularized])),
            E3: final_rows(at(scored, runs[in_e3])),
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
            yield Measurement.of(f"{mode}, {setting}", f"{column} of {label(method)}", values)

    def compare(
        self, mode: str, setting: str, one: str, other: str, column: str, margin: float = 0.0, equal: bool = False
    ) -> Iterator[Measurement]:
        """One method's score minus another's."""
        values, others = (self.values(mode, setting, method, column) for method in (one, other))
        if len(values) and len(others):
            what = f"{column} of {label(one)} - {label(other)}"
            yield Measurement.of(f"{mode}, {setting}", what, values - others, margin=margin, equal=equal)

    def searched(self, mode: str, method: str) -> Iterator[Measurement]:
        """Overall at the coefficient that E.3 chose minus Overall at each other one that it tried."""
        runs = self.all[(self.all["mode"] == mode) & (self.all["method"] == method)]
        overall = runs.pivot(index="seed", columns="beta", values="overall")
        chosen, *others = SEARCHED[method]
        for other in others:
            if {chosen, other} <= set(overall):
                what = f"Overall of {label(method)} at {chosen:g} - at {other:g}"
                yield Measurement.of(mode, what, overall[chosen] - overall[other])

    def best_rival(self, mode: str) -> str | None:
        """The rival that is best on the selection seeds; None without one, or without CoKL."""
        rivals = [rival for rival in self.rivals if (mode, rival) in self.chosen.index]
        if not rivals or (mode, "cokl") not in self.chosen.index:
            return None
        return max(rivals, key=lambda rival: float(self.chosen[mode, rival]))

    def over_the_best_rival(self, mode: str) -> Iterator[Measurement]:
        """CoKL's best Overall minus that of the best rival."""
        if rival := self.best_rival(mode):
            ours, theirs = (self.values(mode, BEST, method, "overall") for method in ("cokl", rival))
            what = f"overall of CoKL - {label(rival)}, the best on the selection seeds"
            yield Measurement.of(f"{mode}, {BEST}", what, ours - theirs)

    def collapse(self, mode: str, setting: str) -> Iterator[Measurement]:
        """Retention below zero counts as none, so that CoKL has to retain something."""
        ours, without = (self.values(mode, setting, method, "retention") for method in ("cokl", "cokl_without_term1"))
        if len(ours) and len(without):
            what = "half of CoKL's retention - CoKL w/o term 1's, if positive"
            yield Measurement.of(f"{mode}, {setting}", what, ours / 2 - without.clip(lower=0))


def _batches(scored: pd.DataFrame, mode: str, larger: int, smaller: int) -> Iterator[Measurement]:
    """CoKL's retention with a larger KL batch minus with a smaller one, at each coefficient trained with both."""
    ours = final_rows(scored[(scored["method"] == "cokl") & (scored["role"] == "report") & (scored["mode"] == mode)])
    for beta, runs in ours.groupby("beta", sort=False):
        retention = runs.pivot(index="seed", columns="kl_prompts", values="retention")
        if {larger, smaller} <= set(retention):
            what = f"retention with {larger:g} - with {smaller:g} prompts at beta {beta:g}"
            yield Measurement.of(mode, what, retention[larger] - retention[smaller])


def _coefficients(scored: pd.DataFrame, mode: str) -> Iterator[Measurement]:
    """CoKL at the ends of the paper's range, or of what its grid has of it."""
    main = main_rows(final_rows(scored))
    runs = main[(main["method"] == "cokl") & (main["role"] == "report") & (main["mode"] == mode)]
    runs = runs[runs["beta"].between(*BETAS)]
    low, high = runs["beta"].min(), runs["beta"].max()
    if not low < high:
        return
    for column, one, other in (("retention", high, low), ("adaptation", low, high)):
        ends = runs.pivot(index="seed", columns="beta", values=column)
        yield Measurement.of(mode, f"{column} at beta {one:g} - at {other:g}", ends[one] - ends[other])


def _zero_correct(scored: pd.DataFrame, mode: str) -> Iterator[Measurement]:
    """Of CoKL's rollout groups after the first step, how far the share without a correct response is below one half."""
    main = main_rows(scored)
    rows = main[(main["method"] == "cokl") & (main["role"] == "report") & (main["mode"] == mode)]
    rows = rows[(rows["beta"] == PAPER_BETA) & (rows["step"] > 0)].dropna(subset=["zero_correct_rate"])
    if len(rows):
        rates = 100 * rows.groupby("seed")["zero_correct_rate"].mean()
        what = "50 - percentage of groups without a correct response"
        yield Measurement.of(f"{mode}, {PAPER}", what, 50 - rates)


def _drifts(scored: pd.DataFrame, views: _Views, mode: str) -> Iterator[Measurement]:
    """Correct drift minus mass drift: of GRPO at the end and at the first evaluated step, of CoKL at the end."""
    reported = scored[scored["role"] == "report"]
    grpo = reported[(reported["mode"] == mode) & (reported["method"] == "none") & (reported["step"] > 0)]
    for step in sorted(set(grpo["step"].agg(["min", "max"]).dropna()), reverse=True):
        rows = grpo[grpo["step"] == step].set_index("seed")
        what = f"correct - mass drift of GRPO w/o KL at step {step:g}"
        yield Measurement.of(mode, what, rows["correct_drift"] - rows["mass_drift"], "nats")
    correct, mass = (views.values(mode, BEST, "cokl", f"{drift}_drift") for drift in ("correct", "mass"))
    if len(correct):
        yield Measurement.of(f"{mode}, {BEST}", "correct - mass drift of CoKL", correct - mass, "nats")
