"""What the paper's title says of plasticity, judged on a finished plasticity table; declared before the runs.

The two primary measurements are sampled, after the configuration's primary change, paired by seed, at matched
correctness of its first phase 1: CoKL's plasticity minus that of the best of the paper's other regularizers, which the
selection seeds choose, and minus replay's. After another phase 1 the rival is the best of that phase. Where wrong
answers become correct CoKL is expected to have no advantage; that is a claim of its own, and so is each column that is
compared beside plasticity. The rules from measurements to verdicts are in `cokl.support.verdicts`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from bandit.engine.tables import method_label as label
from bandit.plasticity.config import TwoPhases
from bandit.plasticity.score import REPLAY, at_match, best_rival, match, per_seed, runs
from cokl.support.statistics import with_spread
from cokl.support.verdicts import Claim, Measurement, Unit, judged

WHERE = "The title; beyond the paper's experiments"
_SAMPLED = ", sampled"
"""How the place of a primary measurement ends."""
_BESIDE: dict[str, tuple[str, Unit]] = {
    "distinct_at_64": ("more different correct answers among 64", "answers"),
    "conditional_entropy": ("more entropy within the correct answers", "nats"),
}


def judge(table: pd.DataFrame, config: TwoPhases) -> list[Claim]:
    """Every claim whose primary measurement the methods and changes of a table allow."""
    primary = config.primary_change
    if primary not in set(table["change"]):
        return []
    scored = runs(table)
    chosen = match(table, config)
    differences = _Differences(at_match(scored, chosen, ["plasticity", *config.beside]), scored, config)
    rival, *later_rivals = (best_rival(scored, chosen, primary, phase.name) for phase in config.phases)
    narrowed = f"learns a narrowed reward ({primary}) better"
    than_others = "than that of the best other regularizer in the paper's controlled experiment"
    moved = [change for change in differences.changes if change.startswith("moved")]
    others = [change for change in differences.changes if change not in moved]
    measured = {
        f"At matched correctness, CoKL's policy {narrowed} {than_others}": [
            *differences.over(rival, others),
            *differences.by_cache(*later_rivals),
        ],
        f"At matched correctness, CoKL's policy {narrowed} than replay's, which lacks term 2": [
            *differences.over(REPLAY, others),
            *differences.by_cache(*[REPLAY] * len(later_rivals)),
        ],
        f"Replay's policy {narrowed} {than_others}": list(differences.over(rival, others, REPLAY)),
        f"CoKL's policy {narrowed} than the reference does": list(differences.over("reference", others)),
        f"Where wrong {config.answers} become correct, CoKL's policy also learns better {than_others}, "
        "at matched correctness": [
            measurement
            for other in dict.fromkeys((rival, "forward_kl", REPLAY))
            for measurement in differences.over(other, moved)
        ],
    }
    for column in config.beside:
        measurements = [one for other in (rival, REPLAY) for one in differences.over(other, [primary], column=column)]
        measured[f"At matched correctness, CoKL's policy has {_BESIDE[column][0]} {than_others}"] = measurements
    return [
        judged(statement, WHERE, [measurements[0]], [[other] for other in measurements[1:]])
        for statement, measurements in measured.items()
        if measurements and measurements[0].where.endswith(_SAMPLED)
    ]


def lead(table: pd.DataFrame, config: TwoPhases) -> Claim:
    """The first claim in a few words; without a verdict where the table does not allow it."""
    scored, chosen = runs(table), match(table, config)
    rival = best_rival(scored, chosen, config.primary_change, config.phases[0].name)
    differences = _Differences(at_match(scored, chosen, ["plasticity"]), scored, config)
    for primary in differences.over(rival, [config.primary_change]):
        measured = f"plasticity by {with_spread(primary.mean, primary.half_width, 3)}"
        return replace(
            judged(f"CoKL learns a narrowed reward better than {label(rival)}", "", [primary]),
            measured=measured,
        )
    return Claim("CoKL's policy learns a narrowed reward better than others'", "", "no two policies to compare", None)


class _Differences:
    """Plasticity of one method minus another's at the match, by seed."""

    def __init__(self, matched: pd.DataFrame, scored: pd.DataFrame, config: TwoPhases) -> None:
        self.matched, self.config = matched, config
        self.primary = config.phases[0]
        # The primary change first, whatever the configuration's order.
        self.changes = sorted(scored["change"].unique(), key=lambda change: change != config.primary_change)

    def over(
        self, other: str, changes: list[str], one: str = "cokl", column: str = "plasticity"
    ) -> Iterator[Measurement]:
        """After the primary phase 1: the first change sampled, then every other one, then all in expectation."""
        phase, size = self.primary.name, self.primary.size
        for mode, change in itertools.product(("sampled", "exact"), changes):
            theirs_after = "reference" if other == "reference" else phase
            ours = per_seed(self.matched, one, change, mode, phase, size, column)
            theirs = per_seed(self.matched, other, change, mode, theirs_after, size, column)
            if len(ours) and len(theirs):
                what = f"{column} of {label(one)} minus {label(other)}"
                where = change if column == "plasticity" else "after phase 1"
                yield Measurement.of(
                    f"{where}, {mode}", what, ours - theirs, _BESIDE[column][1] if column in _BESIDE else "mean reward"
                )

    def by_cache(self, *others: str) -> Iterator[Measurement]:
        """After each later phase 1, by CoKL's G_ref, which is the other's too if it weights cached responses."""
        change = self.config.primary_change
        for phase, other in zip(self.config.phases[1:], others, strict=True):
            for size in sorted(phase.cached):
                ours, theirs = (
                    per_seed(self.matched, method, change, "sampled", phase.name, size) for method in ("cokl", other)
                )
                if len(ours) and len(theirs):
                    where = f"{change}, phase 1 {phase.name} with {size} cached"
                    what = f"plasticity of {label('cokl')} minus {label(other)}"
                    yield Measurement.of(where, what, ours - theirs, "mean reward")
