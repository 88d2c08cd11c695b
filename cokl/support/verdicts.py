"""Claims, and the rules that turn measurements over seeds into their verdicts.

- A measurement is decided at 5%, two-sided: above zero (or above minus a margin), or below. "Equal" is decided for by
  two one-sided tests at 5% each: the 90% interval lies within the margin. It is decided against at 5%, two-sided.
- A claim with several primary parts is a conjunction. It is held if every part is held, which needs no correction. It
  is not held if one part is decided against it, after Holm's correction over the parts. Otherwise it is undecided.
- Secondary measurements are the same claim in another mode or at other coefficients. Holm's correction is over them.
  The verdict is the primary one. If the decided measurements, primary and secondary, contradict each other, the
  verdict is "depends".

Assumption beyond the paper: a verdict takes at least four seeds. The width of an interval over two or three seeds is
mostly luck, so such an interval decides nothing.
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

ALPHA = 0.05
"""Two-sided: a verdict's interval is the 95% one, 2.5% on either side."""

MINIMUM_SEEDS = 4

SPREAD = "After ± is the half-width of the 95% t-interval over seeds."
"""A note for a screen."""

Unit = Literal["points", "nats", "probability", "mean reward", "answers"]
Verdict = Literal["held", "not held", "undecided", "depends"]
"""On a claim: "depends" where decided measurements disagree; a single measurement is never that."""


Origin = Literal["paper", "beyond"]
"""Who makes a claim: the paper, or we beyond it, be it in one word of the claim alone."""


@dataclass(frozen=True)
class Evidence:
    """A piece of evidence.

    kind: "primary", "secondary" or the method of a check; "" where a claim has one piece. part: how much of the claim
    it shows, "" for all of it.
    """

    kind: str
    text: str
    part: str = ""

    @property
    def shown_kind(self) -> str:
        """Its kind, and of how much, as it is shown to people."""
        return f"{self.kind} in part ({self.part})" if self.part else self.kind

    @property
    def line(self) -> str:
        """As it is shown to people."""
        return f"{self.shown_kind}: {self.text}" if self.kind else self.text


@dataclass(frozen=True)
class Claim:
    """A claim, who makes it where, its evidence, and the verdict in this environment.

    name: by which code and tests know it, unique among the claims of one kind of results. place: in the paper, in
    words. primary: what gives the verdict. verdict: None where there are too few seeds for one, or nothing to judge.
    derivation: an argument in words, if there is one.
    """

    name: str
    statement: str
    origin: Origin
    place: str
    primary: Evidence
    verdict: Verdict | None
    secondary: tuple[Evidence, ...] = ()
    derivation: str = ""

    @property
    def lines(self) -> list[str]:
        """Each piece of evidence as it is shown to people, the primary one first."""
        return [evidence.line for evidence in (self.primary, *self.secondary)]


@dataclass(frozen=True)
class Measurement:
    """A mean over seeds, and what a claim expects of it.

    where: mode and coefficients. what: the quantity, written so that the claim expects it to be positive. half_width:
    of its 95% t-interval. margin: 0, or how far below zero the mean may be; for `equal`, how far from zero. equal: the
    claim expects a mean within the margin of zero.
    """

    where: str
    what: str
    mean: float
    half_width: float
    seeds: int
    unit: Unit = "points"
    margin: float = 0.0
    equal: bool = False

    @classmethod
    def of(
        cls, where: str, what: str, values: pd.Series, unit: Unit = "points", margin: float = 0.0, equal: bool = False
    ) -> Measurement:
        """From one value per seed."""
        from cokl.support.statistics import mean_and_half_width

        return cls(where, what, *mean_and_half_width(values), len(values), unit, margin, equal)

    @property
    def leaning(self) -> Literal["held", "not held"]:
        """What the measurement says if it is decided."""
        inside = abs(self.mean) < self.margin if self.equal else self.mean > -self.margin
        return "held" if inside else "not held"

    @property
    def p_value(self) -> float:
        """Of the test that decides for `leaning`, in [0, 1]."""
        nearest = math.copysign(self.margin, self.mean) if self.equal else -self.margin
        p = p_value(self.mean, self.half_width, self.seeds, nearest)
        return p / 2 if self.equal and self.leaning == "held" else p

    @property
    def value(self) -> str:
        """The quantity and its interval."""
        digits = 1 if self.unit == "points" else 3
        interval = f"{self.mean:z.{digits}f} ± {self.half_width:.{digits}f} {self.unit}"
        expected = f" (equal means within {self.margin:g})" if self.equal else ""
        return f"{self.what}: {interval}{expected}"

    def told(self, rival: str, in_what: str) -> str:
        """CoKL's value minus the rival's as a sentence: ahead, behind, or not told apart."""
        from cokl.support.statistics import with_spread

        unit, digits = ("", 3) if self.unit != "points" else (" points", 1)
        difference = with_spread(self.mean, self.half_width, digits) + unit
        verdict = verdict_on(self.mean, self.half_width, self.seeds)
        if verdict == "held":
            return f"CoKL is {difference} ahead of {rival} in {in_what}"
        if verdict == "not held":
            return f"CoKL is {difference.removeprefix('-')} behind {rival} in {in_what}"
        return f"CoKL and {rival} are not told apart in {in_what}: the difference is {difference}"


def conjunction(parts: Sequence[Measurement]) -> tuple[Literal["held", "not held"], float]:
    """What several measurements say together of a claim that needs them all, and the p-value that decides for it.

    Leaning to held, the largest p; else the smallest of those that lean to not held, adjusted by Holm over all parts.
    """
    p_values = [part.p_value for part in parts]
    against = [p for part, p in zip(parts, _adjusted(p_values), strict=True) if part.leaning == "not held"]
    return ("not held", min(against)) if against else ("held", max(p_values))


def of_each(parts: Sequence[Measurement]) -> list[Verdict]:
    """The verdict on each part of a conjunction: held by itself, not held after Holm's correction over the parts."""
    p_values = [part.p_value for part in parts]
    decided = [
        p <= ALPHA if part.leaning == "held" else sure
        for part, p, sure in zip(parts, p_values, holm(p_values), strict=True)
    ]
    return [part.leaning if known else "undecided" for part, known in zip(parts, decided, strict=True)]


def claim_from(
    name: str,
    statement: str,
    origin: Origin,
    place: str,
    parts: Sequence[Measurement],
    elsewhere: Iterable[Sequence[Measurement]] = (),
) -> Claim:
    """The claim by its primary measurements, all of which it needs, and by the secondary ones.

    elsewhere: the same parts in other modes or at other coefficients, a sequence for each. No verdict below four seeds.
    """
    groups = [group for group in elsewhere if group]
    leaning, p = conjunction(parts)
    others = [conjunction(group) for group in groups]
    sure = holm([p_of_group for _, p_of_group in others])
    verdict: Verdict = leaning if p <= ALPHA else "undecided"
    decided = {one for (one, _), known in zip(others, sure, strict=True) if known}
    if {"held", "not held"} <= {verdict, *decided}:
        verdict = "depends"
    enough = min(part.seeds for part in parts) >= MINIMUM_SEEDS
    secondary = []
    for group, (one, _), known in zip(groups, others, sure, strict=True):
        outcome = f" ({one if known else 'undecided'})" if enough else ""
        secondary.append(Evidence("secondary", f"{_written(group)}{outcome}"))
    primary = Evidence("primary", _written(parts))
    return Claim(name, statement, origin, place, primary, verdict if enough else None, tuple(secondary))


def _written(group: Sequence[Measurement]) -> str:
    """Where a group was measured, and its quantities with their intervals."""
    return f"{group[0].where}: {'; '.join(one.value for one in group)}"


def screen(claims: Iterable[Claim], width: int = 100) -> str:
    """A paragraph per claim for a terminal: verdict and statement, then the measurements."""
    lines = []
    for claim in claims:
        verdict = "-" if claim.verdict is None else "held" if claim.verdict == "held" else claim.verdict.upper()
        lines.append(textwrap.fill(claim.statement, width, initial_indent=f"{verdict:11}", subsequent_indent=" " * 11))
        for line in claim.lines:
            lines.append(textwrap.fill(line, width, initial_indent=" " * 13, subsequent_indent=" " * 13))
    return "\n".join(lines)


def withheld(claims: Iterable[Claim], seeds: int) -> list[Claim]:
    """The claims, without their verdicts where `seeds` are too few for one."""
    refused = bool(no_verdict(seeds))
    return [dataclasses.replace(claim, verdict=None) if refused else claim for claim in claims]


def no_verdict(seeds: int) -> str:
    """Why there are no verdicts, or "" where there are enough seeds."""
    if seeds >= MINIMUM_SEEDS:
        return ""
    reported = "1 reported seed is" if seeds == 1 else f"{seeds} reported seeds are"
    return f"No verdicts: {reported} too few; a verdict takes at least {MINIMUM_SEEDS}."


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


def _adjusted(p_values: Sequence[float]) -> list[float]:
    """p-values after Holm's correction for their number, in [0, 1]."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def holm(p_values: Sequence[float], alpha: float = ALPHA) -> list[bool]:
    """Which of several hypotheses Holm's step-down procedure rejects, with a family-wise error of at most `alpha`."""
    return [p <= alpha for p in _adjusted(p_values)]
