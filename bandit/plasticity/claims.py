"""What the paper's title says of plasticity, judged on a finished plasticity table; declared before the runs.

The two primary measurements are sampled, after `PRIMARY_CHANGE`, paired by seed, at matched correctness of the exact
phase 1: CoKL's plasticity minus that of the best of the paper's other regularizers, which the selection seeds choose,
and minus replay's. After a sampled phase 1 the rival is the best of that phase. Where wrong actions become correct CoKL
is expected to have no advantage; that is a claim of its own. The rules from measurements to verdicts are in
`cokl.support.verdicts`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from bandit.engine.tables import method_label as label
from bandit.plasticity.config import PRIMARY_CHANGE, PlasticityConfig
from bandit.plasticity.score import REPLAY, at_match, best_rival, match, per_seed, runs
from cokl.support.statistics import with_spread
from cokl.support.verdicts import Claim, Measurement, judged

WHERE = "The title; beyond the paper's experiments"
_SAMPLED = ", sampled"
"""How the place of a primary measurement ends."""


def judge(table: pd.DataFrame, config: PlasticityConfig) -> list[Claim]:
    """Every claim whose primary measurement the methods and changes of a table allow."""
    if PRIMARY_CHANGE not in set(table["change"]):
        return []
    scored = runs(table)
    chosen = match(table, config)
    differences = _Differences(at_match(scored, chosen, ["plasticity"]), scored)
    rival = best_rival(scored, chosen, PRIMARY_CHANGE)
    sampled_rival = best_rival(scored, chosen, PRIMARY_CHANGE, "sampled")
    narrowed = f"learns a narrowed reward ({PRIMARY_CHANGE}) better"
    moved = [change for change in differences.changes if change.startswith("moved")]
    others = [change for change in differences.changes if change not in moved]
    measured = {
        f"At matched correctness, CoKL's policy {narrowed} than that of the best of the paper's other regularizers": [
            *differences.over(rival, others),
            *differences.by_cache(sampled_rival),
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
    return [
        judged(statement, WHERE, [found[0]], [[other] for other in found[1:]])
        for statement, found in measured.items()
        if found and found[0].where.endswith(_SAMPLED)
    ]


def lead(table: pd.DataFrame, config: PlasticityConfig) -> Claim:
    """The first claim in a few words; without a verdict where the table does not allow it."""
    scored, chosen = runs(table), match(table, config)
    rival = best_rival(scored, chosen, PRIMARY_CHANGE)
    differences = _Differences(at_match(scored, chosen, ["plasticity"]), scored)
    for primary in differences.over(rival, [PRIMARY_CHANGE]):
        measured = f"plasticity by {with_spread(primary.mean, primary.half_width, 3)}"
        return replace(
            judged(f"CoKL learns a narrowed reward better than {label(rival)}", "", [primary]),
            measured=measured,
        )
    return Claim("CoKL's policy learns a narrowed reward better than others'", "", "no two policies to compare", None)


class _Differences:
    """Plasticity of one method minus another's at the match, by seed."""

    def __init__(self, matched: pd.DataFrame, scored: pd.DataFrame) -> None:
        self.matched = matched
        # The primary change first, whatever the configuration's order.
        self.changes = sorted(scored["change"].unique(), key=lambda change: change != PRIMARY_CHANGE)
        self.cached = sorted(set(scored.loc[scored["phase"] == "sampled", "cached"]) - {0})

    def over(self, other: str, changes: list[str], one: str = "cokl") -> Iterator[Measurement]:
        """After the exact phase 1: the first change sampled, then every other one, then all in expectation."""
        for mode, change in itertools.product(("sampled", "exact"), changes):
            ours = per_seed(self.matched, one, change, mode)
            theirs = per_seed(self.matched, other, change, mode, "reference" if other == "reference" else "exact")
            if len(ours) and len(theirs):
                what = f"plasticity of {label(one)} - {label(other)}"
                yield Measurement.of(f"{change}, {mode}", what, ours - theirs, "probability")

    def by_cache(self, other: str) -> Iterator[Measurement]:
        """After the sampled phase 1, by CoKL's G_ref, which is the other's too if it weights cached responses."""
        for size in self.cached:
            ours, theirs, uncached = (
                per_seed(self.matched, method, PRIMARY_CHANGE, "sampled", "sampled", cached)
                for method, cached in (("cokl", size), (other, size), (other, 0))
            )
            theirs = theirs if len(theirs) else uncached
            if len(ours) and len(theirs):
                where = f"{PRIMARY_CHANGE}, phase 1 sampled with {size} cached"
                what = f"plasticity of {label('cokl')} - {label(other)}"
                yield Measurement.of(where, what, ours - theirs, "probability")
