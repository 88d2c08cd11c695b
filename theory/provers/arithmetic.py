"""The arithmetics in which one formula is evaluated: 50 digits (mpmath), symbols (sympy) and rigorous intervals (Arb).

A formula takes `num`, a namespace with `log`, `exp` and `sqrt`, as its first argument: `mpmath.mp`, `sympy` or
`Intervals` below. Arb rounds correctly outwards but keeps a midpoint and a radius, so a ball over many magnitudes
reaches below zero; an `Interval` therefore keeps its two ends, each the outer bound of an Arb computation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flint
from flint import arb

BITS = 128
flint.ctx.prec = BITS
_ZERO, _ONE, _NAN = arb(0), arb(1), arb("nan")


@dataclass(frozen=True, slots=True)
class Interval:
    """All reals from `low` to `high`, exact numbers in Arb; operations enclose the exact image.

    An operation that is not defined on the whole interval gives NaN at both ends, about which no comparison is true.
    Raises ValueError for ends that are not exact or in the wrong order: there is no empty interval.
    """

    low: arb
    high: arb

    def __post_init__(self) -> None:
        if self.low <= self.high and self.low.is_exact() and self.high.is_exact():
            return
        if not (self.low.is_nan() or self.high.is_nan()):
            raise ValueError(f"interval: expected exact ends, the lower one first, got {self.low} and {self.high}")
        object.__setattr__(self, "low", _NAN)
        object.__setattr__(self, "high", _NAN)

    @classmethod
    def of(cls, value: Any) -> Interval:
        """An interval itself, or the tightest one that holds an int, a float or an Arb ball."""
        if isinstance(value, cls):
            return value
        exact = arb(value)
        return cls(exact.lower(), exact.upper())

    def __add__(self, other: Any) -> Interval:
        other = Interval.of(other)
        return Interval((self.low + other.low).lower(), (self.high + other.high).upper())

    __radd__ = __add__

    def __neg__(self) -> Interval:
        return Interval((-self.high).lower(), (-self.low).upper())

    def __sub__(self, other: Any) -> Interval:
        return self + -Interval.of(other)

    def __mul__(self, other: Any) -> Interval:
        other = Interval.of(other)
        if self.low >= 0 and other.low >= 0:
            return Interval((self.low * other.low).lower(), (self.high * other.high).upper())
        products = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        lows, highs = [product.lower() for product in products], [product.upper() for product in products]
        return Interval(_bound(min, lows), _bound(max, highs))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Interval:
        other = Interval.of(other)
        if other.low > 0 or other.high < 0:
            return self * Interval((1 / other.high).lower(), (1 / other.low).upper())
        return UNDEFINED

    def __pow__(self, exponent: Any) -> Interval:
        """An integer power (x^0 = 1), or any real power, or one in an interval, of a positive interval."""
        if not isinstance(exponent, int):
            return Intervals.exp(Intervals.log(self) * exponent)
        if exponent < 0:
            return 1 / self**-exponent
        if exponent == 0:
            return UNDEFINED if self.low.is_nan() else Interval(_ONE, _ONE)
        if exponent % 2 or self.low >= 0:
            return Interval((self.low**exponent).lower(), (self.high**exponent).upper())
        if self.high <= 0:
            return (-self) ** exponent
        return Interval(_ZERO, _bound(max, [(self.low**exponent).upper(), (self.high**exponent).upper()]))

    def __rsub__(self, other: Any) -> Interval:
        return -self + other

    def __rtruediv__(self, other: Any) -> Interval:
        return Interval.of(other) / self

    def __lt__(self, other: Any) -> bool:
        """True only if every point of one side is certainly below every point of the other."""
        return bool(self.high < Interval.of(other).low)

    def __gt__(self, other: Any) -> bool:
        return bool(self.low > Interval.of(other).high)

    @property
    def width(self) -> float:
        """high - low; inf where the interval is not bounded."""
        bounded = self.low.is_finite() and self.high.is_finite()
        return float((self.high - self.low).upper()) if bounded else float("inf")


UNDEFINED = Interval(_NAN, _NAN)


def _bound(extreme: Callable[[list[arb]], arb], values: list[arb]) -> arb:
    """The `min` or `max` of exact numbers; NaN if one of them is."""
    return _NAN if any(value.is_nan() for value in values) else extreme(values)


class Intervals:
    """The functions of a formula on intervals, as a namespace; each is increasing."""

    @staticmethod
    def log(x: Any) -> Interval:
        """Natural; undefined unless the whole interval is positive."""
        x = Interval.of(x)
        return Interval(x.low.log().lower(), x.high.log().upper()) if x.low > 0 else UNDEFINED

    @staticmethod
    def exp(x: Any) -> Interval:
        """e^x, of any interval."""
        x = Interval.of(x)
        return Interval(x.low.exp().lower(), x.high.exp().upper())

    @staticmethod
    def sqrt(x: Any) -> Interval:
        """The nonnegative root; undefined unless the whole interval is >= 0."""
        x = Interval.of(x)
        return Interval(x.low.sqrt().lower(), x.high.sqrt().upper()) if x.low >= 0 else UNDEFINED
