"""The population optimum of any registered regularizer to at most 50 digits, with what certifies it.

Every regularizer that the toolkit registers reduces to one dimension: for fixed Z the conditionals have a known optimum
(the reference's, or uniform for entropy), and what is left is a function of Z whose slope is written here from its
definition. `theory.formulas` says where its root is, without cancellation; interval arithmetic certifies it by a sign
change of the slope between two numbers that round to the same printed digits, and by the slope's strict monotonicity
(Appendix D, and `theory.claims`). The precision rises until it does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from fractions import Fraction
from math import isqrt
from typing import Any, NamedTuple

import flint

from cokl import regularizers
from cokl.support.errors import InputError, told_of_users_code
from theory import formulas
from theory.digits import certified_decimal, mass_gap_and_excess, rounded
from theory.formulas import Formula
from theory.optimum_search import searched
from theory.provers.arithmetic import Interval, Intervals

LARGEST_EXPONENT = 10_000  # q, beta and correct_fraction are between 1e-10000 and 1e10000
MOST_DIGITS = 50


class Point(NamedTuple):
    """A correctness z beside y = 1 - z and the excess z - q."""

    z: Any
    y: Any
    excess: Any


@dataclass(frozen=True)
class Root:
    """An interior optimum: slope(num, point, q, p, beta), strictly decreasing in z, and its root's z - q and 1 - z."""

    slope: Callable[..., Any]
    excess: Formula
    gap: Formula
    why: str


@dataclass(frozen=True)
class Boundary:
    """An optimum at Z = 0 or 1 whatever q and beta are."""

    mass: int
    why: str


def _forward_slope(num, at: Point, q, p, beta):
    return 1 - beta * at.excess / (at.z * at.y)


def _reverse_slope(num, at: Point, q, p, beta):
    return 1 - beta * (num.log(at.z / at.y) - num.log(q / p))


def _jensen_shannon_slope(num, at: Point, q, p, beta):
    return 1 - beta * (num.log(2 * at.z / (at.z + q)) - num.log(2 * at.y / (at.y + p))) / 2


_REPLAY = "J = Z - beta KL(ref+ || pi+) + beta log Z <= 1 with equality only at Z = 1, pi+ = ref+"
_CONCAVE = "strictly concave in Z at the reference's conditionals"
PROBLEMS: dict[str, Root | Boundary] = {
    "forward_kl": Root(_forward_slope, formulas.forward_kl_excess, formulas.forward_kl_gap, f"Theorem 2: {_CONCAVE}"),
    "reverse_kl": Root(_reverse_slope, formulas.reverse_kl_excess, formulas.reverse_kl_gap, f"Theorem 2: {_CONCAVE}"),
    "jensen_shannon": Root(
        _jensen_shannon_slope,
        formulas.jensen_shannon_excess,
        formulas.jensen_shannon_gap,
        f"f-divergence: {_CONCAVE}",
    ),
    "entropy": Root(
        _reverse_slope,
        formulas.reverse_kl_excess,
        formulas.reverse_kl_gap,
        "reverse KL to the uniform policy, whose correctness takes the place of q",
    ),
    "cokl": Boundary(1, "Theorem 1: J <= Z <= 1 with equality only at Z = 1, pi+ = ref+"),
    "correct_forward_kl": Boundary(1, _REPLAY),
    "correct_reverse_kl": Boundary(1, "J = Z - beta KL(pi+ || ref+) + beta log q is largest only at Z = 1, pi+ = ref+"),
    "cokl_without_term1": Boundary(0, "no maximum: Z - beta log Z grows without bound as Z -> 0"),
}


@dataclass(frozen=True)
class PopulationOptimum:
    """What `cokl theory optimum` reports. Numbers are decimal strings, rounded to the requested number of digits.

    mass: Z*. gap: 1 - Z*. above_reference: Z* - q. certified: every digit of these three is right; False where nothing
    but a search supports them.
    """

    method: str
    q: str
    beta: str
    mass: str
    gap: str
    above_reference: str
    certified: bool
    certificate: str


def population_optimum(
    method: str, q: str | float, beta: str | float, digits: int = 15, correct_fraction: str | float | None = None
) -> PopulationOptimum:
    """Z* of a registered regularizer. q, beta and correct_fraction may be decimal strings, which are taken exactly.

    Raises InputError for an unknown method, q or correct_fraction outside (0, 1), beta <= 0, a number that is not
    between 1e-10000 and 1e10000, digits outside [1, 50], for entropy without a correct_fraction, and for a class of
    one's own that fails with 8 actions.
    """
    regularizer = regularizers.get(method)
    method = regularizer.name
    if not 1 <= digits <= MOST_DIGITS:
        raise InputError(f"digits: expected between 1 and {MOST_DIGITS}, got {digits}")
    exact_q, exact_beta = _number("q", q, 1), _number("beta", beta, None)
    fraction = None if correct_fraction is None else _number("correct_fraction", correct_fraction, 1)
    problem = PROBLEMS.get(method)

    def report(numbers: tuple[str, str, str], certified: bool, why: str) -> PopulationOptimum:
        return PopulationOptimum(method, rounded(exact_q, 15), rounded(exact_beta, 15), *numbers, certified, why)

    if problem is None:
        with told_of_users_code(method, "value with 8 actions, among which an optimum is searched"):
            mass, how = searched(regularizer, exact_q, exact_beta)
        why = f"{how}; no closed form is registered in theory.optima"
        return report(mass_gap_and_excess(mass, exact_q, min(digits, 8)), False, why)
    if isinstance(problem, Boundary):
        return report(mass_gap_and_excess(Fraction(problem.mass), exact_q, digits), problem.mass == 1, problem.why)
    anchor = exact_q
    if method == "entropy":
        if fraction is None:
            raise InputError("correct_fraction: the entropy optimum needs correct actions over all actions, in (0, 1)")
        anchor = fraction
    rational = _rational_optimum(exact_q, exact_beta) if method == "forward_kl" else None
    if rational is not None:
        why = f"the slope vanishes at this rational number, in exact arithmetic; {problem.why}"
        return report(mass_gap_and_excess(rational, exact_q, digits), True, why)
    numbers, bits = _certified_digits(problem, anchor, exact_beta, exact_q, digits)
    why = (
        "the slope changes sign from + to - between two numbers that round to these digits, in interval arithmetic of "
        f"{bits} bits; {problem.why}"
    )
    return report(numbers, True, why)


def _number(name: str, value: str | float, high: int | None) -> Fraction:
    """The exact value of a finite number in (0, high)."""
    wanted = f"in (0, {high})" if high is not None else "> 0"
    try:
        number = Decimal(value)
    except (DecimalException, ValueError, TypeError) as error:
        raise InputError(f"{name}: expected a number {wanted}, got {value!r}") from error
    if not number.is_finite() or number <= 0 or (high is not None and number >= high):
        raise InputError(f"{name}: expected a finite number {wanted}, got {value}")
    if abs(number.adjusted()) > LARGEST_EXPONENT:
        raise InputError(f"{name}: expected a number from 1e-{LARGEST_EXPONENT} to 1e{LARGEST_EXPONENT}, got {value}")
    return Fraction(number)


def _rational_optimum(q: Fraction, beta: Fraction) -> Fraction | None:
    """Z*_FKL where it is rational, the root of z (1 - z) = beta (z - q): only then may a digit be a tie."""
    discriminant = (1 - beta) ** 2 + 4 * beta * q
    root = Fraction(isqrt(discriminant.numerator), isqrt(discriminant.denominator))
    z = (1 - beta + root) / 2
    return z if z * (1 - z) == beta * (z - q) else None


def _certified_digits(
    problem: Root, anchor: Fraction, beta: Fraction, q: Fraction, digits: int
) -> tuple[tuple[str, str, str], int]:
    """Z*, 1 - Z* and Z* - q for the root of the problem with reference correctness `anchor`, and the bits it took.

    Raises ArithmeticError if the digits are not certified at a precision that must suffice.
    """
    bits = 64 + int(3.4 * digits)
    sizes = [number.bit_length() for x in (anchor, beta, q) for number in (x.numerator, x.denominator)]
    enough = 16 * (bits + sum(sizes))
    while bits <= enough:
        with flint.ctx.workprec(bits):
            numbers = _digits_at(problem, anchor, beta, q, digits, bits // 2)
        if numbers is not None:
            return numbers, bits
        bits *= 2
    raise ArithmeticError(f"the sign change of the slope could not be certified with {bits // 2} bits")


def _digits_at(
    problem: Root, anchor: Fraction, beta: Fraction, q: Fraction, digits: int, margin: int
) -> tuple[str, str, str] | None:
    """The digits at the current precision, None if it does not certify them all.

    The unknown is the smaller of Z* - anchor and 1 - Z*. Its enclosure, widened by a factor 1 ± 2^-margin, is the
    bracket at whose ends the slope's signs are evaluated.
    """
    a, p, b = (_interval(x) for x in (anchor, 1 - anchor, beta))
    excess, gap = problem.excess(Intervals, a, p, b), problem.gap(Intervals, a, p, b)
    upwards = bool(2 * excess < p)
    unknown = excess if upwards else gap
    if not unknown > 0:
        return None
    factor = Interval.of(flint.arb(2) ** -margin)
    bracket = Interval((unknown * (1 - factor)).low, (unknown * (1 + factor)).high)

    def rising(end: flint.arb) -> Interval:
        t = Interval(end, end)
        at = Point(a + t, p - t, t) if upwards else Point(1 - t, t, p - t)
        return problem.slope(Intervals, at, a, p, b)

    left, right = (bracket.low, bracket.high) if upwards else (bracket.high, bracket.low)
    if not (rising(left) > 0 and rising(right) < 0):
        return None
    brackets = (
        (a + bracket, p - bracket, bracket + _interval(anchor - q))
        if upwards
        else (1 - bracket, bracket, _interval(1 - q) - bracket)
    )
    mass, rest, above = (certified_decimal(value, digits) for value in brackets)
    return None if mass is None or rest is None or above is None else (mass, rest, above)


def _interval(number: Fraction) -> Interval:
    return Interval.of(flint.arb(flint.fmpq(number.numerator, number.denominator)))
