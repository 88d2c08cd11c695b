"""Numbers as printed: at most so many significant digits, each of them right, without trailing zeros."""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

import flint

from theory.provers.arithmetic import Interval


def certified_decimal(value: Interval, digits: int) -> str | None:
    """The decimal to which every number of the interval rounds; None if there is none, or it is not certain."""
    if value < 0:
        opposite = certified_decimal(-value, digits)
        return None if opposite is None else f"-{opposite}"
    if not value > 0:
        return None
    exponent = (value.low.log() / flint.arb(10).log()).lower().floor().unique_fmpz()  # one too small beside 10^n
    if exponent is None:
        return None
    scaled = value * Interval.of(flint.arb(10) ** (digits - 1 - exponent))
    integers = {(end + flint.arb("0.5")).floor().unique_fmpz() for end in (scaled.low, scaled.high)}
    integer = integers.pop()
    if integers or integer is None or integer > flint.fmpz(10) ** digits:
        return None
    carried = integer == flint.fmpz(10) ** digits
    return _written(str(integer // 10 if carried else integer), flint.fmpz(exponent + carried), digits)


def mass_gap_and_excess(mass: Fraction, q: Fraction, digits: int) -> tuple[str, str, str]:
    """Z, 1 - Z and Z - q, each to `digits` digits."""
    return rounded(mass, digits), rounded(1 - mass, digits), rounded(mass - q, digits)


def rounded(number: Fraction, digits: int) -> str:
    """A rational number to `digits` digits, ties to even."""
    context = Context(prec=digits, rounding=ROUND_HALF_EVEN, Emax=MAX_EMAX, Emin=MIN_EMIN)
    decimal = context.divide(Decimal(abs(number.numerator)), Decimal(number.denominator))
    if not decimal:
        return "0.0"
    text = _written("".join(map(str, decimal.as_tuple().digits)), flint.fmpz(decimal.adjusted()), digits)
    return f"-{text}" if number < 0 else text


def _written(significand: str, exponent: flint.fmpz, digits: int) -> str:
    """d.ddd 10^exponent, without trailing zeros, as a fixed-point number where that is short."""
    kept = significand.rstrip("0")
    if 0 <= exponent < digits:
        point = int(exponent) + 1
        return f"{kept[:point].ljust(point, '0')}.{kept[point:] or '0'}"
    if -5 < exponent < 0:
        return f"0.{'0' * (-1 - int(exponent))}{kept}"
    return f"{kept[0]}.{kept[1:] or '0'}e{'+' if exponent > 0 else ''}{exponent}"
