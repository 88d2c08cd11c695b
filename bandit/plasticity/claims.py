"""What the paper's title says of plasticity, judged on a finished plasticity table; declared before the runs.

The two primary measurements are sampled, after `PRIMARY_CHANGE`, paired by seed, at matched correctness of the exact
phase 1: CoKL's plasticity minus that of the best of the paper's other regularizers, which the selection seeds choose,
and minus replay's. Where wrong actions become correct CoKL is expected to have no advantage; that is a claim of its
own. Each claim's secondary measurements are corrected for their number by Holm's procedure; one that is decided the
other way makes the verdict "depends".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pandas as pd

from bandit.engine.tables import method_label as label
from bandit.plasticity.config import PRIMARY_CHANGE, PlasticityConfig
from bandit.plasticity.score import REPLAY, at_match, best_rival, match, per_seed, runs
from cokl.support.statistics import mean_and_half_width, with_spread
from cokl.support.verdicts import ALPHA, MINIMUM_SEEDS, Claim, Verdict, holm, p_value

WHERE = "The title; beyond the paper's experiments"
_Difference = tuple[str, pd.Series]
"""Where and what, and the differences by seed."""
_SAMPLED = ", sampled: "
"""Where a primary measurement is taken."""


def judge(table: pd.DataFrame, config: PlasticityConfig) -> list[Claim]:
    """Every claim whose primary measurement the methods and changes of a table allow."""
    if PRIMARY_CHANGE not in set(table["change"]):
        return []
    scored = runs(table)
    chosen = match(table, config)
    differences = _Differences(at_match(scored, chosen, ["plasticity"]), scored)
    rival = best_rival(scored, chosen, PRIMARY_CHANGE)
    narrowed = f"learns a narrowed reward ({PRIMARY_CHANGE}) better"
    moved = [change for change in differences.changes if change.startswith("moved")]
    others = [change for change in differences.changes if change not in moved]
    measured = {
        f"At matched correctness, CoKL's policy {narrowed} than that of the best of the paper's other regularizers": [
            *differences.over(rival, others),
            *differences.by_cache(rival),
        ],
        f"At matched correctness, CoKL's policy {narrowed} than replay's, which lacks term 2": [
            *differences.over(REPLAY, others),
            *differences.by_cache(REPLAY),
        ],
        f"Conditioning on correctness suffices: replay's policy {narrowed} than that of the best of the paper's other "
        "regularizers": list(differences.over(rival, others, REPLAY)),
        f"CoKL's policy {narrowed} than the reference does": list(differences.over("reference", others)),
        "At matched correctness, CoKL's policy also learns better than the others' that actions which were wrong are "
        "correct": [
            found for other in dict.fromkeys((rival, "forward_kl", REPLAY)) for found in differences.over(other, moved)
        ],
    }
    return [_claim(statement, found) for statement, found in measured.items() if found and _SAMPLED in found[0][0]]


class _Differences:
    """Plasticity of one method minus another's at the match, by seed."""

    def __init__(self, matched: pd.DataFrame, scored: pd.DataFrame) -> None:
        self.matched = matched
        # The primary change first, whatever the configuration's order.
        self.changes = sorted(scored["change"].unique(), key=lambda change: change != PRIMARY_CHANGE)
        self.cached = sorted(set(scored.loc[scored["phase"] == "sampled", "cached"]) - {0})

    def over(self, other: str, changes: list[str], one: str = "cokl") -> Iterator[_Difference]:
        """After the exact phase 1: the first change sampled, then every other one, then all in expectation."""
        for mode, change in itertools.product(("sampled", "exact"), changes):
            ours = per_seed(self.matched, one, change, mode)
            theirs = per_seed(self.matched, other, change, mode, "reference" if other == "reference" else "exact")
            if len(ours) and len(theirs):
                yield f"{change}, {mode}: plasticity of {label(one)} - {label(other)}", ours - theirs

    def by_cache(self, other: str) -> Iterator[_Difference]:
        """After the sampled phase 1, by CoKL's G_ref, which is the other's too if it weights cached responses."""
        for size in self.cached:
            ours, theirs, uncached = (
                per_seed(self.matched, method, PRIMARY_CHANGE, "sampled", "sampled", cached)
                for method, cached in (("cokl", size), (other, size), (other, 0))
            )
            theirs = theirs if len(theirs) else uncached
            if len(ours) and len(theirs):
                what = f"{PRIMARY_CHANGE}, phase 1 sampled with {size} cached"
                yield f"{what}: plasticity of {label('cokl')} - {label(other)}", ours - theirs


def _claim(statement: str, measured: list[_Difference]) -> Claim:
    intervals = [(*mean_and_half_width(values), len(values)) for _, values in measured]
    p_values = [p_value(*interval) for interval in intervals]
    decided = [p_values[0] <= ALPHA, *holm(p_values[1:])]
    sides: list[Verdict] = [
        ("held" if mean > 0 else "not held") if sure else "undecided"
        for sure, (mean, _, _) in zip(decided, intervals, strict=True)
    ]
    judged = intervals[0][2] >= MINIMUM_SEEDS
    opposite = {"held": "not held", "not held": "held"}.get(sides[0])
    verdict: Verdict | None = "depends" if opposite in sides[1:] else sides[0]
    lines = [
        f"{what} {with_spread(mean, half_width, 3)}" + (f" ({side})" if judged else "")
        for (what, _), (mean, half_width, _), side in zip(measured, intervals, sides, strict=True)
    ]
    return Claim(
        statement,
        WHERE,
        f"primary: {lines[0]}",
        verdict if judged else None,
        tuple(f"secondary: {line}" for line in lines[1:]),
    )
