"""The optimum calculator: digits that are right, certificates that mean something, bad input that is named."""

import dataclasses
import math
import re
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

import theory.digits
from cokl import regularizers
from cokl.support.errors import InputError
from theory.optima import PROBLEMS, Root, population_optimum
from theory.provers.arithmetic import UNDEFINED, Interval

ORACLE = mpmath.MPContext()
ORACLE.dps = 2000  # enough to subtract Z* from 1 and q from Z* for any two doubles
FRACTION = "0.06"
NAMES = ("mass", "gap", "above_reference")


def oracle_gap(method, q, beta):
    """1 - Z* from formulas of its own: the stationarity conditions solved for y = 1 - z."""
    p = 1 - q
    if method == "forward_kl":  # y (1 - y) = beta (p - y)
        return (1 + beta - ORACLE.sqrt((1 + beta) ** 2 - 4 * beta * p)) / 2
    if method == "jensen_shannon":  # (1 - y) (y + p) = exp(2 / beta) y (1 + q - y)
        factor = ORACLE.exp(2 / beta)
        linear = factor * (1 + q) - q
        return 2 * p / (linear + ORACLE.sqrt(linear**2 - 4 * (factor - 1) * p))
    return p / (p + q * ORACLE.exp(1 / beta))  # odds are multiplied by exp(1 / beta)


def oracle(method, q, beta):
    """Z*, 1 - Z* and Z* - q at 2000 digits."""
    q, beta, fraction = (ORACLE.mpf(x.numerator) / x.denominator for x in map(Fraction, (q, beta, FRACTION)))
    gap = oracle_gap(method, fraction if method == "entropy" else q, beta)
    return dict(zip(NAMES, (1 - gap, gap, 1 - gap - q), strict=True))


def units_off(text, exact, digits):
    """How far a printed number is from the `exact` one, in units of its last of `digits` significant digits."""
    exponent = int(ORACLE.floor(ORACLE.log10(abs(exact))))
    scale = ORACLE.exp((digits - 1 - exponent) * ORACLE.ln10)
    significand, _, power = text.partition("e")
    printed = ORACLE.mpf(significand) * ORACLE.exp((int(power or 0) + digits - 1 - exponent) * ORACLE.ln10)
    return abs(printed - exact * scale)


def assert_right(method, q, beta, digits):
    optimum = population_optimum(method, q, beta, digits, FRACTION)
    assert optimum.certified
    for name, exact in oracle(method, q, beta).items():
        text = getattr(optimum, name)
        assert units_off(text, exact, digits) <= 0.5 + 1e-9, (name, text)
        assert len(re.sub(r"e.*|[-.]", "", text).strip("0")) <= digits


ROOTS = ["entropy", "forward_kl", "jensen_shannon", "reverse_kl"]


@pytest.mark.parametrize("method", ROOTS)
@given(
    q=st.floats(0, 1, exclude_min=True, exclude_max=True),
    beta=st.floats(0, exclude_min=True, allow_infinity=False) | st.floats(-323, 308).map(lambda x: 10.0**x),
    digits=st.integers(1, 40),
)
def test_every_printed_digit_is_right_for_all_doubles(method, q, beta, digits):
    assert_right(method, q, beta or 5e-324, digits)


@pytest.mark.parametrize("method", ROOTS)
@pytest.mark.parametrize(
    ("q", "beta", "digits"),
    [
        ("0.1", "1e6", 3),
        ("0.1", "1e20", 3),
        ("0.1", "1e20", 15),
        ("1e-5", "3e-5", 15),
        ("1e-30", "1e-30", 15),
        ("5e-324", "5e-324", 15),
        ("0." + "9" * 300, "1e300", 15),
        ("0." + "9" * 300, "1e-300", 15),
        ("0.125", "1e300", 2),  # Z* is just above a tie of two digits
        ("0.5", "1e-300", 15),
        ("0.12345678901234567890123456789", "0.98765432109876543210987654321", 50),
    ],
)
def test_every_printed_digit_is_right_where_it_is_hard(method, q, beta, digits):
    assert_right(method, q, beta, digits)


@pytest.mark.parametrize("method", ROOTS)
@pytest.mark.parametrize("beta", ["1e-10000", "1e10000"])
def test_the_ends_of_the_range_are_certified(method, beta):
    optimum = population_optimum(method, "1e-10000", beta, 15, FRACTION)
    assert optimum.certified
    assert optimum.mass == ("1.0" if beta == "1e-10000" else FRACTION if method == "entropy" else "1.0e-10000")


@pytest.mark.parametrize(("digits", "mass"), [(1, "0.7"), (2, "0.75"), (15, "0.75")])
def test_a_rational_optimum_is_exact(digits, mass):
    """z (1 - z) = beta (z - q) at z = 3/4, q = 1/2, beta = 3/4; one digit of it would be a tie without the parity."""
    optimum = population_optimum("forward_kl", "0.5", "0.75", digits)
    assert (optimum.mass, optimum.certified) == ("0.8" if digits == 1 else mass, True)


@pytest.mark.parametrize("method", ROOTS)
@pytest.mark.parametrize(
    ("part", "error"),
    [
        *((part, error) for part in ("excess", "gap", "slope") for error in (1e-12, -1e-12)),
        ("gap", math.nan),
        ("slope", math.nan),
    ],
)
def test_a_wrong_solution_is_not_certified(method, part, error, monkeypatch):
    """Wrong in the twelfth digit, of which six are asked: the slope does not change sign there."""
    right = PROBLEMS[method]
    assert isinstance(right, Root)
    wrong: dict[str, Any] = {part: lambda *arguments: getattr(right, part)(*arguments) * (1 + error) + error}
    monkeypatch.setitem(PROBLEMS, method, dataclasses.replace(right, **wrong))
    q, beta = ("0.2", "50") if part == "excess" else ("0.2", "0.05")
    with pytest.raises(ArithmeticError, match="could not be certified"):
        population_optimum(method, q, beta, 6, FRACTION)


@pytest.mark.parametrize(
    "interval", [UNDEFINED, Interval(arb(0), arb(1)), Interval(arb(-1), arb(1)), Interval(arb(0.1249), arb(0.1251))]
)
def test_digits_that_are_not_certain_are_not_printed(interval):
    assert theory.digits.certified_decimal(interval, 2) is None


@pytest.mark.parametrize("method", sorted(PROBLEMS))
@pytest.mark.parametrize("beta", ["1e-3", "0.3", "1", "1e3"])
@pytest.mark.parametrize("q", ["1e-6", "0.25", "0.999999"])
def test_agrees_with_the_closed_form(method, q, beta):
    optimum = population_optimum(method, q, beta, digits=17, correct_fraction="0.06")
    closed = regularizers.get(method).optimal_mass(float(q), float(beta), 0.06)
    assert closed is not None
    assert math.isclose(float(optimum.mass), float(closed), rel_tol=1e-12)
    assert optimum.certified == (method != "cokl_without_term1")


def test_every_registered_method_has_a_problem():
    assert sorted(PROBLEMS) == regularizers.names()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("forward_kl", "0", "1"), "q"),
        (("forward_kl", "1", "1"), "q"),
        (("forward_kl", "half", "1"), "q"),
        (("forward_kl", "0.5", "0"), "beta"),
        (("forward_kl", "0.5", "-1"), "beta"),
        (("forward_kl", "0.5", "nan"), "beta"),
        (("forward_kl", "0.5", "inf"), "beta"),
        (("forward_kl", "0.5", "1e-10001"), "beta"),
        (("forward_kl", "0.5", "1e10001"), "beta"),
        (("forward_kl", "1e-999999999999999999", "1"), "q"),
        (("forward_kl", "1e-99999999999999999999", "1"), "q"),
        (("forward_kl", float("nan"), "1"), "q"),
        (("forward_kl", "0.5", "1", 0), "digits"),
        (("forward_kl", "0.5", "1", 51), "digits: expected between 1 and 50, got 51$"),
        (("entropy", "0.5", "1"), "correct_fraction"),
        (("entropy", "0.5", "1", 15, "1.5"), "correct_fraction"),
        (("no_such", "0.5", "1"), "unknown regularizer"),
    ],
)
def test_bad_input_is_named(arguments, word):
    with pytest.raises(InputError, match=f"^{word}"):
        population_optimum(*arguments)


@pytest.mark.parametrize("method", ["forward_kl", "reverse_kl", "jensen_shannon"])
@pytest.mark.parametrize(
    ("q", "beta"),
    [("1e-20", "10"), ("1e-200", "3"), ("0.1", "1"), ("0.1", "0.04"), ("0.5", "1e6"), ("0.9999999999", "0.3")],
)
def test_a_search_finds_what_is_known_to_seven_digits_however_small(method, q, beta, monkeypatch):
    """As a class of one's own is searched, by autograd. At q = 1e-20 a search over J itself gave 2.07e-16 for 1.11e-20;
    at beta 0.04 the gaps of reverse KL and JS are 1e-10 and 1e-21."""
    monkeypatch.delitem(PROBLEMS, method)
    monkeypatch.setattr(type(regularizers.get(method)), "logit_gradient", regularizers.Regularizer.logit_gradient)
    optimum = population_optimum(method, q, beta)
    assert not optimum.certified
    assert optimum.certificate.startswith("a search over Z at the reference's conditionals; ")
    for name, exact in oracle(method, q, beta).items():
        text = getattr(optimum, name)
        assert units_off(text, exact, 7) <= 1, (name, text)
        assert len(re.sub(r"e.*|[-.]", "", text).strip("0")) <= 8  # of the 15 that were asked for


def test_an_optimum_that_the_search_does_not_reach_is_said_to_be_beyond_it(monkeypatch):
    """CoKL's is at Z = 1, reverse KL's at 1 - Z = 1e-434, and log Z's has no maximum: J grows towards Z = 0."""
    for method, beta, mass, end in (
        ("cokl", "0.3", "1.0", "1 - Z = "), ("reverse_kl", "0.001", "1.0", "1 - Z = "),
        ("cokl_without_term1", "2", "0.0", "Z = "),
    ):  # fmt: skip
        monkeypatch.delitem(PROBLEMS, method)
        optimum = population_optimum(method, "0.1", beta)
        assert optimum.mass == mass
        assert re.match(
            rf"beyond the search, which still gains at {end}\d\.\de-30\d; its limit is given", optimum.certificate
        )
        assert not optimum.certified
    with pytest.raises(InputError, match=r"^q: expected a number in .*1e-304.* searched in float64"):
        population_optimum("cokl", "1e-2000", "1")


def test_a_class_that_takes_more_actions_than_are_searched_is_a_line(monkeypatch):
    monkeypatch.delitem(PROBLEMS, "cokl")
    own = type(regularizers.get("cokl"))
    monkeypatch.setattr(own, "logit_gradient", regularizers.Regularizer.logit_gradient)
    monkeypatch.setattr(own, "value", lambda self, policy, reference: policy.probs.topk(20).values.sum(-1))
    with pytest.raises(InputError, match=r"^cokl: RuntimeError in its value with 8 actions, among which [^\n]*: "):
        population_optimum("cokl", "0.1", "0.3")


def test_a_kink_is_found_and_of_several_maxima_the_best_and_that_they_are_several_is_said(monkeypatch):
    """Total variation's J = Z - beta |Z - q| is largest at q for beta > 1. With |Z - q| |Z - c|, it is so at q or c."""

    def tv(policy, reference):
        return (policy.probs - reference.probs).abs().sum(-1) / 2

    def two(policy, reference):
        return tv(policy, reference) * (policy.mass - 0.75).abs()

    for value, beta, mass in ((tv, "3", 0.25), (two, "9", 0.75)):
        mine = type(
            "Mine",
            (regularizers.Regularizer,),
            {"name": "mine", "label": "", "value": lambda _, *two, value=value: value(*two)},
        )
        monkeypatch.setitem(regularizers._registry, "mine", mine())
        optimum = population_optimum("mine", "0.25", beta)
        assert float(optimum.mass) == pytest.approx(mass, rel=1e-7)
        assert ("the best of 2 maxima" in optimum.certificate) == (value is two)
