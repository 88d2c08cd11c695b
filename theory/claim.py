"""What a claim is: a statement with its source, a check that can fail, and the evidence that the check returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import mpmath

from cokl.support.verdicts import Origin
from theory.provers.intervals import Proof

Case = TypeVar("Case")

BEYOND = "beyond the paper"
BOXES = "proved on boxes"
"""How interval proofs are called in the tables."""
WORKING_DIGITS = 50 + 70  # of mpmath in every check: 50, and what 1 - Z may lose where Z is within 1e-70 of 1


@dataclass(frozen=True)
class Effort:
    """How much work a claim may do.

    samples: random policies or parameter points. programs: convex programs. boxes: evaluations per interval proof.
    largest_group: largest G that is evaluated point by point.
    """

    samples: int = 400
    programs: int = 12
    boxes: int = 400_000
    largest_group: int = 1024


QUICK = Effort(samples=24, programs=2, boxes=60_000, largest_group=24)


@dataclass(frozen=True)
class Evidence:
    """One measurement of a claim.

    method: how it was obtained. domain: where. error: the worst deviation, or the undecided boxes of a proof.
    accepted: the largest error at which the claim holds. detail: what else a sceptic would ask. part: how much of the
    claim it is about, "" for all of it.
    """

    method: str
    domain: str
    error: float
    accepted: float
    detail: str = ""
    part: str = ""

    @property
    def holds(self) -> bool:
        """Whether the error is accepted; a NaN never is."""
        return not math.isnan(self.error) and self.error <= self.accepted


@dataclass(frozen=True)
class Statement:
    """A statement under test.

    name: identifier, unique. source: the paper's label, or "beyond the paper". origin: "beyond" as soon as a word of it
    is ours. place: the source in short, as a reader of the paper finds it. check: takes an effort, returns evidence
    about the formulas of `theory.formulas`.
    """

    name: str
    statement: str
    source: str
    origin: Origin
    place: str
    check: Callable[[Effort], list[Evidence]]

    @property
    def derivation(self) -> str:
        """What the check's docstring says after its first paragraph; "" where the paper has the derivation."""
        return " ".join((self.check.__doc__ or "").partition("\n\n")[2].split())


CLAIMS: dict[str, Statement] = {}
"""By name, in the order of the paper; filled as `theory.claims` is imported, whose `registered_claims` reads it."""


def claim(name: str, source: str, origin: Origin = "paper", place: str = "") -> Callable:
    """Decorator: register a check as a claim, to be run with WORKING_DIGITS. place: the source where left out.

    The first paragraph of the check's docstring is the statement, the rest its derivation: what is published stands at
    the code that tests it, so that neither changes out of sight of the other. Raises ValueError for a name
    that is taken.
    """

    def register(check: Callable[[Effort], list[Evidence]]) -> Callable[[Effort], list[Evidence]]:
        if name in CLAIMS:
            raise ValueError(f"name: there is already a claim called {name!r}")
        statement = " ".join((check.__doc__ or "").partition("\n\n")[0].split())
        CLAIMS[name] = Statement(
            name, statement, source, origin, place or source, mpmath.workdps(WORKING_DIGITS)(check)
        )
        return check

    return register


def proved(domain: str, proofs: dict[str, Proof]) -> Evidence:
    """Evidence from interval proofs, all of which must hold; a refuted one counts as infinitely wrong.

    Raises ValueError without any proof.
    """
    if not proofs:
        raise ValueError("proofs: expected at least one, an empty list proves nothing")
    refused = [f"{name}: {proof.refusal}" for name, proof in proofs.items() if not proof.holds]
    error = math.inf if any(proof.refuted for proof in proofs.values()) else sum(p.undecided for p in proofs.values())
    detail = "; ".join([f"{sum(proof.boxes for proof in proofs.values())} boxes", *refused])
    return Evidence(BOXES, domain, error, 0, detail)


def largest(*errors: Any) -> Any:
    """The largest error, NaN if one of them is: unlike `max`, which may drop a NaN."""
    return next((error for error in errors if not error <= math.inf), None) or max(errors)


def worst_over(cases: Iterable[Case], error: Callable[[Case], Any]) -> float:
    """The largest error of all cases; NaN if one of them is."""
    return worst_of_each(cases, lambda case: (error(case),))[0]


def worst_of_each(cases: Iterable[Case], errors: Callable[[Case], Sequence[Any]]) -> list[float]:
    """The largest of each of the errors that a case has; NaN if one of them is. None is below 0."""
    return [float(largest(0, *column)) for column in zip(*map(errors, cases), strict=True)]
