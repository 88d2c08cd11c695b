"""The arithmetics in which one formula is evaluated: 50 digits (mpmath), symbols (sympy) and rigorous balls (Arb).

A formula takes `num`, a namespace with `log`, `exp` and `sqrt`, as its first argument: `mpmath.mp`, `sympy`, `math`,
`numpy` or `Balls` below. `Ball` is an arb: an interval that provably holds the exact value.
"""

from __future__ import annotations

import flint
from flint import arb as Ball

BITS = 192
flint.ctx.prec = BITS


class Balls:
    """The functions of a formula on balls, as a namespace."""

    @staticmethod
    def log(x: Ball) -> Ball:
        return x.log()

    @staticmethod
    def exp(x: Ball) -> Ball:
        return x.exp()

    @staticmethod
    def sqrt(x: Ball) -> Ball:
        return x.sqrt()


def hull(low: float | str, high: float | str) -> Ball:
    """The smallest ball that holds [low, high]; decimal strings are enclosed, floats are exact."""
    return Ball(low).union(Ball(high))
