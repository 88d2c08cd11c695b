"""The paper's claims of the task shift, and the measurements of a scored table that decide them.

Every measurement is a mean over the reported seeds, a difference paired by seed but for what a score already compares
with GRPO's, and is written so that the paper expects it to be positive. The rules from measurements to verdicts are in
`cokl.support.verdicts`. Primary are, as the paper's experiments are, sampled groups, at the coefficients of E.3: 1 for
CoKL, its ablations and the forward KLs, 0.001 for the reverse KLs. What is compared at each method's own best
coefficient is a claim beside it. Secondary are expectations, other coefficients, and "equal adaptation", interpolated
between neighbouring coefficients. A table of one mode alone has that mode's measurement as its primary one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from bandit.engine.two_tasks.summary import final_rows, label
from bandit.shift.config import PAPER_BETA
from bandit.shift.scores import BEST, E3, EQUAL, FORWARD, PAPER, REVERSE, Scored
from cokl.support.verdicts import Claim, Measurement, Origin, claim_from

NEGLIGIBLE = 1.0
"""Points of Overall; a gain whose interval ends below this is none. The paper's smallest lead is 1.40 points."""

EQUIVALENT = 5.0
"""Points of a score; two methods whose difference is shown to be smaller are as good as each other."""

VARIANTS = ("cokl", "cokl_floor", "cokl_without_term1")
"""What is no rival of CoKL's."""

SEARCHED = {**dict.fromkeys(FORWARD, (1.0, 0.1, 10.0)), **dict.fromkeys(REVERSE, (1e-3, 1e-2, 1.0))}
"""The coefficients that E.3 searches over for its baselines, the chosen one first."""

KL_BATCHES = (8, 16, 32)
"""Prompts per update in the paper's KL batch analysis."""

BETAS = (0.1, 10.0)
"""The ends of the paper's sensitivity analysis."""

_Maybe = Measurement | None  # None, or a mean that is NaN, where the table lacks the rows


@dataclass(frozen=True)
class Views:
    """What is measured of a scored table, in each mode and setting."""

    scored: Scored

    def values(self, mode: str, setting: str, method: str, column: str) -> pd.Series:
        """A value per seed; empty where the table has none."""
        rows = self.scored.rows[setting]
        return rows[(rows["mode"] == mode) & (rows["method"] == method)].set_index("seed")[column]

    def level(self, mode: str, setting: str, method: str, column: str) -> Measurement:
        """A score itself."""
        values = self.values(mode, setting, method, column)
        return Measurement.of(f"{mode}, {setting}", f"{column} of {label(method)}", values)

    def compare(
        self, mode: str, setting: str, one: str, other: str, column: str, margin: float = 0.0, equal: bool = False
    ) -> Measurement:
        """One method's score minus another's."""
        values, others = (self.values(mode, setting, method, column) for method in (one, other))
        what = f"{column} of {label(one)} minus {label(other)}"
        return Measurement.of(f"{mode}, {setting}", what, values - others, margin=margin, equal=equal)

    def searched(self, mode: str, method: str) -> Iterator[_Maybe]:
        """Overall at the coefficient that E.3 chose minus Overall at each other one that it tried."""
        ends = self.scored.ends
        runs = ends[(ends["mode"] == mode) & (ends["method"] == method)]
        overall = runs.pivot(index="seed", columns="beta", values="overall")
        chosen, *others = SEARCHED[method]
        for other in others:
            what = f"Overall of {label(method)} at {chosen:g} minus at {other:g}"
            known = {chosen, other} <= set(overall)
            yield Measurement.of(mode, what, overall[chosen] - overall[other]) if known else None

    def best_rival(self, mode: str) -> str | None:
        """The rival that is best on the selection seeds; None without one, or without CoKL."""
        overall, methods = self.scored.selection_overall, self.scored.table["method"].unique()
        rivals = [name for name in methods if name not in (*VARIANTS, "base") and (mode, name) in overall.index]
        if not rivals or (mode, "cokl") not in overall.index:
            return None
        return max(rivals, key=lambda rival: float(overall[mode, rival]))

    def over_the_best_rival(self, mode: str) -> _Maybe:
        """CoKL's best Overall minus that of the best rival."""
        rival = self.best_rival(mode)
        if rival is None:
            return None
        ours, theirs = (self.values(mode, BEST, method, "overall") for method in ("cokl", rival))
        what = f"overall of CoKL minus {label(rival)}, the best on the selection seeds"
        return Measurement.of(f"{mode}, {BEST}", what, ours - theirs)

    def collapse(self, mode: str, setting: str) -> Measurement:
        """Retention below zero counts as none, so that CoKL has to retain something."""
        ours, without = (self.values(mode, setting, method, "retention") for method in ("cokl", "cokl_without_term1"))
        what = "half of CoKL's retention minus CoKL w/o term 1's, a negative one counted as 0"
        return Measurement.of(f"{mode}, {setting}", what, ours / 2 - without.clip(lower=0))

    def batches(self, mode: str, larger: float, smaller: float) -> Iterator[list[_Maybe]]:
        """CoKL's retention with a larger KL batch minus with a smaller one, at each coefficient trained with both."""
        table = self.scored.table
        rows = table[(table["method"] == "cokl") & (table["role"] == "report")]
        for beta, runs in final_rows(rows[rows["mode"] == mode]).groupby("beta", sort=False):
            retention = runs.pivot(index="seed", columns="kl_prompts", values="retention")
            if {larger, smaller} <= set(retention):
                what = f"retention with {larger:g} minus with {smaller:g} prompts at beta {beta:g}"
                yield [Measurement.of(mode, what, retention[larger] - retention[smaller])]

    def _main(self, mode: str) -> pd.DataFrame:
        """CoKL's reported rows of the main KL batch."""
        main = self.scored.main
        return main[(main["method"] == "cokl") & (main["role"] == "report") & (main["mode"] == mode)]

    def coefficients(self, mode: str) -> list[_Maybe]:
        """CoKL at the ends of the paper's range, or of what its grid has of it."""
        runs = final_rows(self._main(mode))
        runs = runs[runs["beta"].between(*BETAS)]
        low, high = runs["beta"].min(), runs["beta"].max()
        if not low < high:
            return [None]
        parts: list[_Maybe] = []
        for column, one, other in (("retention", high, low), ("adaptation", low, high)):
            ends = runs.pivot(index="seed", columns="beta", values=column)
            parts.append(Measurement.of(mode, f"{column} at beta {one:g} minus at {other:g}", ends[one] - ends[other]))
        return parts

    def zero_correct(self, mode: str) -> Measurement:
        """Of CoKL's rollout groups after the first step, how far the share without a correct response is below half."""
        rows = self._main(mode)
        rows = rows[(rows["beta"] == PAPER_BETA) & (rows["step"] > 0)].dropna(subset=["zero_correct_rate"])
        rates = 100 * rows.groupby("seed")["zero_correct_rate"].mean()
        what = "how far the share of groups without a correct response is below 50%"
        return Measurement.of(f"{mode}, {PAPER}", what, 50 - rates)

    def drifts(self, mode: str) -> Iterator[list[_Maybe]]:
        """Correct drift minus mass drift: of GRPO at the end and at the first evaluated step, of CoKL at the end."""
        reported = self.scored.table[self.scored.table["role"] == "report"]
        grpo = reported[(reported["mode"] == mode) & (reported["method"] == "none") & (reported["step"] > 0)]
        for step in sorted(set(grpo["step"].agg(["min", "max"]).dropna()), reverse=True):
            rows = grpo[grpo["step"] == step].set_index("seed")
            what = f"correct minus mass drift of GRPO w/o KL at step {step:g}"
            yield [Measurement.of(mode, what, rows["correct_drift"] - rows["mass_drift"], "nats")]
        correct, mass = (self.values(mode, BEST, "cokl", f"{drift}_drift") for drift in ("correct", "mass"))
        yield [Measurement.of(f"{mode}, {BEST}", "correct minus mass drift of CoKL", correct - mass, "nats")]


class PaperClaim(NamedTuple):
    """What is judged, who claims it, and where the paper does, of language models.

    parts: the measurements in one mode, in the order of preference; a claim needs all of a list.
    """

    statement: str
    origin: Origin
    place: str
    parts: Callable[[Views, str], Iterable[Sequence[_Maybe]]]


_PAIRS = tuple(zip(FORWARD, REVERSE, strict=True))
PAPER_CLAIMS = {
    "overall": PaperClaim(
        f"At {E3} CoKL has a higher Overall than each of the paper's four baselines with a KL",
        "paper",
        "Main Results, main table",
        lambda of, mode: [[of.compare(mode, E3, "cokl", rival, "overall") for rival in (*FORWARD, *REVERSE)]],
    ),
    "tuned": PaperClaim(
        "Each at its best coefficient, CoKL has a higher Overall than every method that is no variant of it",
        "beyond",
        "Main Results; a search over CoKL's own coefficient and other regularizers are beyond the paper",
        lambda of, mode: [[of.over_the_best_rival(mode)]],
    ),
    "pattern": PaperClaim(
        f"At {PAPER}, CoKL has a higher Overall than replay, retaining as much and adapting more",
        "paper",
        "Main Results, main table",
        lambda of, mode: [
            [
                of.compare(mode, PAPER, "cokl", "correct_forward_kl", "overall"),
                of.compare(mode, PAPER, "cokl", "correct_forward_kl", "retention", EQUIVALENT, equal=True),
                of.compare(mode, PAPER, "cokl", "correct_forward_kl", "adaptation"),
            ]
        ],
    ),
    "reverse": PaperClaim(
        f"At {E3} reverse KLs forget more than forward KLs",
        "paper",
        "Main Results",
        lambda of, mode: [[of.compare(mode, E3, *pair, "retention") for pair in _PAIRS]],
    ),
    "constrained": PaperClaim(
        f"At {E3} forward KLs adapt less than reverse KLs",
        "beyond",
        "beyond the paper, which says that forward KLs may constrain adaptation, and compares them with none in it",
        lambda of, mode: [[of.compare(mode, E3, *pair[::-1], "adaptation") for pair in _PAIRS]],
    ),
    "tuned reverse": PaperClaim(
        "Each at its best coefficient, reverse KLs forget more than forward KLs",
        "beyond",
        "beyond the paper: Main Results at other coefficients than E.3's",
        lambda of, mode: [[of.compare(mode, at, *pair, "retention") for pair in _PAIRS] for at in (BEST, EQUAL)],
    ),
    "search": PaperClaim(
        "Of E.3's coefficients forward KLs have the highest Overall at 1, reverse KLs at 0.001",
        "paper",
        "E.3, search over the baselines' coefficients",
        lambda of, mode: [[part for method in SEARCHED for part in of.searched(mode, method)]],
    ),
    "dynamics": PaperClaim(
        f"At {PAPER} CoKL ends with the prior task better than GRPO without KL and the new one as well",
        "paper",
        "E.6, training dynamics",
        lambda of, mode: [
            [
                of.level(mode, PAPER, "cokl", "retention"),
                of.compare(mode, PAPER, "cokl", "none", "adaptation", EQUIVALENT, equal=True),
            ]
        ],
    ),
    "collapse": PaperClaim(
        "CoKL without term 1 retains less than half of what CoKL does",
        "paper",
        "Ablation of the loss structure",
        lambda of, mode: [[of.collapse(mode, at)] for at in (PAPER, BEST, EQUAL)],
    ),
    "level": PaperClaim(
        f"Without term 1, CoKL at {PAPER} retains no less than GRPO without KL",
        "beyond",
        "beyond the paper, whose table has 3.85 and whose text makes no such claim",
        lambda of, mode: [[of.level(mode, PAPER, "cokl_without_term1", "retention")]],
    ),
    "term 2": PaperClaim(
        "Without its second term, as replay, CoKL adapts less, or at equal adaptation retains less",
        "paper",
        "Ablation of the loss structure",
        lambda of, mode: [
            [of.compare(mode, at, "cokl", "correct_forward_kl", score)]
            for at, score in ((PAPER, "adaptation"), (BEST, "adaptation"), (EQUAL, "retention"))
        ],
    ),
    "floor": PaperClaim(
        f"The correctness floor gains CoKL less than {NEGLIGIBLE:g} point",
        "paper",
        "Batch-level correctness floor",
        lambda of, mode: [
            [of.compare(mode, at, "cokl", "cokl_floor", score, NEGLIGIBLE)]
            for at, score in ((PAPER, "overall"), (BEST, "overall"), (EQUAL, "retention"))
        ],
    ),
    "batches": PaperClaim(
        "Larger KL batches retain more, 32 against 8 prompts",
        "paper",
        "KL batch analysis",
        lambda of, mode: [part for sizes in ((32, 8), (16, 8), (32, 16)) for part in of.batches(mode, *sizes)],
    ),
    "larger batches": PaperClaim(
        "KL batches above the paper's retain more, against 8 prompts",
        "beyond",
        "beyond the paper: KL batch analysis",
        lambda of, mode: [
            part
            for larger in sorted(of.scored.table["kl_prompts"].unique())[::-1]
            if larger > max(KL_BATCHES)
            for part in of.batches(mode, larger, min(KL_BATCHES))
        ],
    ),
    "beta": PaperClaim(
        "Beta trades off between 0.1 and 10: the larger one retains more, the smaller one adapts more",
        "paper",
        "Sensitivity analysis",
        lambda of, mode: [of.coefficients(mode)],
    ),
    "zero-correct": PaperClaim(
        f"At {PAPER} most of CoKL's rollout groups hold a correct response",
        "paper",
        "E.4",
        lambda of, mode: [[of.zero_correct(mode)]],
    ),
    "drift": PaperClaim(
        "Forgetting is more drift within the correct answers than drift of the correctness mass",
        "paper",
        "Batch-level correctness floor",
        lambda of, mode: of.drifts(mode),
    ),
}


def judge(views: Views) -> list[Claim]:
    """Every claim that the methods, modes, coefficients and KL batches of a scored table allow to be judged.

    The first list of measurements that the table has whole is the primary one, sampled before exact.
    """
    claims = []
    for name, (statement, origin, place, parts) in PAPER_CLAIMS.items():
        lists = [list(part) for mode in ("sampled", "exact") for part in parts(views, mode)]
        known = [[m for m in part if m is not None and math.isfinite(m.mean)] for part in lists]
        complete = [some for some, part in zip(known, lists, strict=True) if part and len(some) == len(part)]
        if complete:
            claims.append(claim_from(name, statement, origin, place, complete[0], complete[1:]))
    return claims


def balance(views: Views, mode: str) -> str:
    """CoKL's Overall beside that of the best rival, each method at its best coefficient."""
    lead, rival = views.over_the_best_rival(mode), views.best_rival(mode)
    if lead is None or rival is None or not math.isfinite(lead.mean):
        return "There is no Overall of CoKL and of another method to compare"
    return lead.told(label(rival), "Overall")
