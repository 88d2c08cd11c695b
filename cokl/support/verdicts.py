"""Claims and their verdicts: the p-values of means over seeds, Holm's correction, how many seeds a verdict takes.

Assumption beyond the paper: a verdict takes four seeds or more. An interval over two or three is by luck very wide or
very narrow: it is for looking.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

ALPHA = 0.05
"""Two-sided: a verdict's interval is the 95% one, 2.5% on either side."""

MINIMUM_SEEDS = 4

Verdict = Literal["held", "not held", "undecided", "depends"]
"""On a claim: "depends" where decided measurements disagree; a single measurement is never that."""


@dataclass(frozen=True)
class Claim:
    """A claim, where the paper makes it, its primary measurement, and the verdict in this environment.

    verdict: None where there are too few seeds for one, or nothing to judge. evidence: further measurements, a line
    each. derivation: an argument in words, if there is one.
    """

    statement: str
    where: str
    measured: str
    verdict: Verdict | None
    evidence: tuple[str, ...] = ()
    derivation: str = ""


def withheld(claims: Iterable[Claim], seeds: int) -> list[Claim]:
    """The claims, without their verdicts where `seeds` are too few for one."""
    refused = bool(no_verdict(seeds))
    return [dataclasses.replace(claim, verdict=None) if refused else claim for claim in claims]


def no_verdict(seeds: int) -> str:
    """Why there are no verdicts, or "" where there are enough seeds."""
    if seeds >= MINIMUM_SEEDS:
        return ""
    reported = "1 reported seed is" if seeds == 1 else f"{seeds} reported seeds are"
    return f"No verdicts: {reported} for looking; a verdict takes {MINIMUM_SEEDS}."


def p_value(mean: float, half_width: float, seeds: int, against: float = 0.0) -> float:
    """Two-sided t-test's p that a mean over `seeds`, with a 95% interval of `half_width`, is `against`, in [0, 1].

    1 where one seed leaves the interval unknown; 0 where all seeds agree on another number.
    """
    from scipy import stats  # takes a second to load, and no worker needs it

    if seeds < 2 or not math.isfinite(half_width):
        return 1.0
    distance = abs(mean - against)
    if half_width == 0:
        return float(distance == 0)
    return float(2 * stats.t.sf(distance / half_width * stats.t.ppf(1 - ALPHA / 2, seeds - 1), seeds - 1))


def verdict_on(mean: float, half_width: float, seeds: int) -> Verdict | None:
    """Whether a mean over `seeds`, with a 95% interval of `half_width`, is positive; None below four seeds."""
    if seeds < MINIMUM_SEEDS:
        return None
    if p_value(mean, half_width, seeds) > ALPHA:
        return "undecided"
    return "held" if mean > 0 else "not held"


def holm(p_values: Sequence[float], alpha: float = ALPHA) -> list[bool]:
    """Which of several hypotheses Holm's step-down procedure rejects, with a family-wise error of at most `alpha`."""
    rejected = [False] * len(p_values)
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        if not p_values[place] <= alpha / (len(p_values) - rank):
            break
        rejected[place] = True
    return rejected
