"""Intervals enclose exact images, and the prover proves, refutes and leaves open what it should."""

import math
import operator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mpmath import mp, mpf

from theory.provers.arithmetic import Interval, Intervals
from theory.provers.intervals import prove_positive

numbers = st.floats(-50, 50)


def between(first: float, second: float) -> Interval:
    return Interval(Interval.of(min(first, second)).low, Interval.of(max(first, second)).high)


def encloses(interval: Interval, value: mpf) -> bool:
    return (
        mpf(str(interval.low.str(60, radius=False))) <= value + mpf(10) ** -30
        and value <= mpf(str(interval.high.str(60, radius=False))) + mpf(10) ** -30
    )


@given(a=numbers, b=numbers, c=numbers, d=numbers, s=st.floats(0, 1), t=st.floats(0, 1))
@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul, operator.truediv])
def test_arithmetic_encloses(operation, a, b, c, d, s, t):
    left, right = between(a, b), between(c, d)
    assume(operation is not operator.truediv or right > 1e-3 or right < -1e-3)
    x, y = (mpf(low) + mpf(share) * (mpf(high) - mpf(low)) for low, high, share in ((a, b, s), (c, d, t)))
    assert encloses(operation(left, right), operation(x, y))


@given(a=numbers, b=numbers, s=st.floats(0, 1), exponent=st.integers(0, 5))
def test_powers_and_functions_enclose(a, b, s, exponent):
    interval = between(a, b)
    x = mpf(a) + mpf(s) * (mpf(b) - mpf(a))
    assert encloses(interval**exponent, x**exponent)
    shifted = interval + (1 - min(a, b))
    y = x + mpf(1 - min(a, b))
    assert encloses(Intervals.log(shifted), mp.log(y))
    assert encloses(Intervals.sqrt(shifted), mp.sqrt(y))
    assert encloses(Intervals.exp(interval * 0.1), mp.exp(x * mpf(0.1)))


def test_division_by_an_interval_with_zero_decides_nothing():
    undefined = 1 / between(-1, 1)
    assert not undefined > -math.inf
    assert not undefined < math.inf
    assert undefined.width == math.inf


def test_an_even_power_of_a_sign_change_starts_at_zero():
    square = between(-2, 1) ** 2
    assert not square < 0
    assert float(square.low) == 0
    assert float(square.high) == 4


def test_prover_proves_a_tight_inequality():
    proof = prove_positive(lambda x, y: x * x - 2 * x * y + y * y + 0.01, [(-1.0, 1.0), (-1.0, 1.0)], 100_000)
    assert proof.holds
    assert proof.lowest > 0


def test_prover_refutes():
    proof = prove_positive(lambda x: 0.9 - x, [(0.0, 1.0)], 1000)
    assert proof.refuted
    assert not proof.holds


def test_prover_leaves_open_what_touches_zero():
    proof = prove_positive(lambda x: (x - 0.3) ** 2, [(0.0, 1.0)], 500)
    assert proof.undecided > 0
    assert not proof.refuted
    assert not proof.holds
