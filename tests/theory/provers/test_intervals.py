"""Intervals enclose exact images, ends included, and the prover proves, refutes and leaves open what it should."""

import math
import operator
from fractions import Fraction

import flint
import mpmath
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from theory.claim import largest, proved
from theory.provers.arithmetic import UNDEFINED, Interval, Intervals
from theory.provers.intervals import Proof, prove_positive

POINT = mpmath.MPContext()
POINT.dps = 200  # of point evaluations; exact arithmetic where there is any

ends = st.floats(-1e6, 1e6) | st.sampled_from([0.0, -0.0, 1.0, -1.0, 5e-324, 1e-300, 2.0**-60, 1 + 2.0**-52])
positions = st.sampled_from([Fraction(0), Fraction(1), Fraction(1, 3)]) | st.fractions(0, 1, max_denominator=10**6)
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv]
FUNCTIONS = ["exp", "log", "sqrt"]


@st.composite
def intervals(draw, numbers=ends):
    """An interval and a point of it, exactly; every third one is an end."""
    low, high = sorted((draw(numbers), draw(numbers)))
    return Interval(arb(low), arb(high)), Fraction(low) + draw(positions) * (Fraction(high) - Fraction(low))


def rational(number: arb) -> Fraction:
    mantissa, exponent = number.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def decimal(number: Fraction):
    return POINT.mpf(number.numerator) / number.denominator


def floating(number: arb):
    mantissa, exponent = number.man_exp()
    return POINT.ldexp(POINT.mpf(int(mantissa)), int(exponent))


def encloses(interval: Interval, value) -> bool:
    """Exactly where `value` is a Fraction; a 200-digit `value` is compared as it stands, with no slack."""
    convert = rational if isinstance(value, Fraction) else floating
    return convert(interval.low) <= value <= convert(interval.high)


@pytest.mark.parametrize("precision", [24, 53, 128])
@pytest.mark.parametrize("operation", ARITHMETIC)
@settings(max_examples=150)
@given(left=intervals(), right=intervals())
def test_arithmetic_encloses(operation, precision, left, right):
    with flint.ctx.workprec(precision):
        image = operation(left[0], right[0])
    if operation is operator.truediv and not (right[0] > 0 or right[0] < 0):
        assert image == UNDEFINED or image.low.is_nan()
    else:
        assert encloses(image, operation(left[1], right[1]))


@pytest.mark.parametrize("precision", [24, 128])
@settings(max_examples=150)
@given(base=intervals(), exponent=st.integers(-40, 40))
def test_integer_powers_enclose(precision, base, exponent):
    with flint.ctx.workprec(precision):
        image = base[0] ** exponent
    if exponent < 0 and not (base[0] > 0 or base[0] < 0):
        assert image.low.is_nan()
    else:
        assert encloses(image, base[1] ** exponent)


@pytest.mark.parametrize("precision", [24, 128])
@settings(max_examples=150)
@given(base=intervals(st.floats(1e-6, 1e6)), exponent=intervals(st.floats(-8, 8)), thin=st.booleans())
def test_real_powers_enclose(precision, base, exponent, thin):
    power = Interval.of(float(exponent[0].low)) if thin else exponent[0]
    point = rational(power.low) if thin else exponent[1]
    with flint.ctx.workprec(precision):
        image = base[0] ** (float(power.low) if thin else power)
    assert encloses(image, POINT.power(decimal(base[1]), decimal(point)))


@pytest.mark.parametrize("precision", [24, 53, 128])
@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=150)
@given(argument=intervals())
def test_functions_enclose(name, precision, argument):
    interval, point = argument
    with flint.ctx.workprec(precision):
        image = getattr(Intervals, name)(interval)
    if (name == "log" and not interval.low > 0) or (name == "sqrt" and not interval.low >= 0):
        assert image.low.is_nan()
    else:
        assert encloses(image, getattr(POINT, name)(decimal(point)))


@pytest.mark.parametrize(
    ("numerator", "exponent", "precision"), [(3893924827815215, 50, 53), (1381846513289487, 46, 113)]
)
def test_exp_encloses_just_above_a_grid_point(numerator, exponent, precision):
    """mpmath issue 1181: exp is so close above a number of this precision that mpmath's ceiling stays below it."""
    x = Fraction(numerator, 2**exponent)
    value = POINT.exp(decimal(x))
    with flint.ctx.workprec(precision):
        assert encloses(Intervals.exp(float(x)), value)
    libmp = mpmath.libmp
    ceiling = libmp.mpf_exp(libmp.from_man_exp(numerator, -exponent), precision, libmp.round_ceiling)
    assert POINT.mpf(ceiling) < value  # the case is as hard as the issue says


def test_the_enclosure_test_sees_one_rounding():
    """Ends rounded to nearest instead of outwards are off by less than any usual slack, and are refused."""
    with flint.ctx.workprec(128):
        third = arb(1) / 3
        assert not encloses(Interval(third.mid(), third.mid()), Fraction(1, 3))
        assert encloses(Interval(third.lower(), third.upper()), Fraction(1, 3))


@pytest.mark.parametrize("value", [3, 2**300 + 1, 0.1, float("1e300"), arb("0.1")])
def test_an_interval_of_a_number_holds_it(value):
    interval = Interval.of(value)
    assert encloses(interval, Fraction(1, 10) if isinstance(value, arb) else Fraction(value))
    assert interval.low == interval.high or not isinstance(value, float)


@pytest.mark.parametrize("ends", [(1.0, 0.0), (math.inf, -math.inf)])
def test_an_empty_interval_is_refused(ends):
    with pytest.raises(ValueError, match="lower one first"):
        Interval(*map(arb, ends))


def test_an_end_with_a_radius_is_refused():
    with pytest.raises(ValueError, match="exact ends"):
        Interval(arb(0), arb(1) / 3)


@pytest.mark.parametrize("ends", [("nan", 1), (-1, "nan"), ("nan", "nan")])
@pytest.mark.parametrize(
    "use", [lambda x: x, lambda x: x + 1, lambda x: -x * 2, lambda x: x**2, lambda x: x**0, lambda x: x**-3]
)
def test_nan_decides_nothing_whatever_is_done_with_it(ends, use):
    undefined = use(Interval(*map(arb, ends)))
    assert not undefined > -math.inf
    assert not undefined < math.inf
    assert undefined.width == math.inf


def test_division_by_an_interval_with_zero_decides_nothing():
    for undefined in (1 / Interval(arb(-1), arb(1)), Interval(arb(-1), arb(1)) ** -1, Interval(arb(0), arb(1)) ** -2):
        assert not undefined > -math.inf
        assert not undefined < math.inf
        assert undefined.width == math.inf


def test_an_even_power_of_a_sign_change_starts_at_zero():
    square = Interval(arb(-2), arb(1)) ** 2
    assert not square < 0
    assert float(square.low) == 0
    assert float(square.high) == 4


def test_prover_proves_a_tight_inequality():
    proof = prove_positive(lambda x, y: x * x - 2 * x * y + y * y + 0.05, [(-1.0, 1.0), (-1.0, 1.0)], 100_000)
    assert proof.holds
    assert proof.refusal is None


def test_prover_decides_one_over_x_as_it_is():
    """An inverted power once proved both."""
    assert not prove_positive(lambda x: x**-1 - 0.9, [(1.0, 2.0)], 1000).holds
    assert not prove_positive(lambda x: 0.9 - x**-1, [(1.0, 2.0)], 1000).holds
    assert prove_positive(lambda x: x**-1 - 0.49, [(1.0, 2.0)], 1000).holds
    assert prove_positive(lambda x: 1.01 - x**-1, [(1.0, 2.0)], 1000).holds


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("sign", [1, -1])
def test_prover_refutes_what_fails_along_any_one_axis(dimension, sign):
    """The statement is false in one corner alone, and only along `axis`: whoever looks at the others proves it."""
    for axis in range(dimension):
        proof = prove_positive(lambda *x, axis=axis: 0.9 - sign * x[axis], [(-1.0, 1.0)] * dimension, 20_000)
        assert proof.refuted
        assert not proof.holds
        assert proof.where is not None
        assert sign * proof.where[axis][0 if sign > 0 else 1] >= 0.85
        assert "refuted on [" in str(proof.refusal)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_prover_leaves_open_what_touches_zero(dimension):
    for axis in range(dimension):
        proof = prove_positive(lambda *x, axis=axis: (x[axis] - 0.3) ** 2, [(0.0, 1.0)] * dimension, 500)
        assert proof.undecided > 0
        assert not proof.refuted
        assert not proof.holds
        assert "undecided" in str(proof.refusal)


def test_prover_leaves_open_what_is_undefined():
    assert not prove_positive(lambda x: 1 + 1 / x**2, [(-1.0, 1.0)], 500).holds
    assert not prove_positive(lambda x: UNDEFINED, [(-1.0, 1.0)], 500).holds


def test_prover_refutes_zero():
    proof = prove_positive(lambda x: 0 * x, [(0.0, 1.0)], 10)
    assert proof.refuted


def test_prover_takes_an_axis_without_width():
    assert prove_positive(lambda x, y: x - y + 0.01, [(1.0, 1.0), (0.0, 1.0)], 1000).holds
    stuck = prove_positive(lambda x: x - 1, [(1.0, 1.0)], 10**6)
    assert stuck.refuted
    assert not prove_positive(lambda x: x - 1, [(1.0, math.nextafter(1, 2))], 10**6).holds


@pytest.mark.parametrize("box", [[], [(1.0, 0.0)], [(0.0, math.nan)], [(0.0, math.inf)], [(0.0, 1.0), (math.nan, 1.0)]])
def test_an_empty_box_is_no_proof(box):
    with pytest.raises(ValueError, match="box"):
        prove_positive(lambda *x: Interval.of(1), box, 10)


def test_evidence_of_proofs_says_why_it_refuses():
    good, bad = Proof(4, 0, False), Proof(7, 0, True, [(0.0, 0.5)])
    open_ = Proof(9, 2, False, [(0.25, 0.5), (0.0, 1.0)])
    assert proved("there", {"one": good}).holds
    refuted = proved("there", {"one": good, "two": bad})
    assert not refuted.holds
    assert "two: refuted on [0, 0.5]" in refuted.detail
    undecided = proved("there", {"one": good, "two": open_})
    assert not undecided.holds
    assert "2 boxes undecided, one of them [0.25, 0.5] x [0, 1]" in undecided.detail
    with pytest.raises(ValueError, match="proves nothing"):
        proved("there", {})


@pytest.mark.parametrize("errors", [(0.0, math.nan), (math.nan, 0.0), (1.0, math.nan, 2.0), (math.inf, math.nan)])
def test_the_largest_error_is_nan_if_one_is(errors):
    assert math.isnan(largest(*errors))
    assert largest(0.0, 2.0, 1.0) == 2.0
