"""The optimum calculator: digits that are right, certificates that mean something, bad input that is named."""

import math

import pytest
from mpmath import mp, mpf

from cokl import regularizers
from cokl.support.errors import InputError
from theory.optima import PROBLEMS, population_optimum


@pytest.mark.parametrize("method", sorted(PROBLEMS))
@pytest.mark.parametrize("beta", ["1e-3", "0.3", "1", "1e3"])
@pytest.mark.parametrize("q", ["1e-6", "0.25", "0.999999"])
def test_agrees_with_the_closed_form(method, q, beta):
    optimum = population_optimum(method, q, beta, digits=17, correct_fraction="0.06")
    closed = regularizers.get(method).optimal_mass(float(q), float(beta), 0.06)
    assert closed is not None
    assert math.isclose(float(optimum.mass), float(closed), rel_tol=1e-12)
    assert optimum.certified == (method != "cokl_without_term1")


def test_digits_are_right_beside_one():
    """logit Z* = logit q + 1 / beta exactly: the gap is 9 exp(-1000) / (1 + 9 exp(-1000)) and Z* rounds to 1."""
    optimum = population_optimum("reverse_kl", "0.1", "0.001", digits=40)
    with mp.workdps(600):
        exact = 9 * mp.exp(-1000) / (1 + 9 * mp.exp(-1000))
        assert abs(mpf(optimum.gap) / exact - 1) < mpf(10) ** -39


def test_decimal_input_is_exact():
    """Z*_FKL(q = 0.1, beta = 0.1) = (0.9 + sqrt(0.85)) / 2 of the decimal numbers, not of the nearest doubles."""
    optimum = population_optimum("forward_kl", "0.1", "0.1", digits=50)
    with mp.workdps(60):
        assert abs(mpf(optimum.mass) - (mpf("0.9") + mp.sqrt(mpf("0.85"))) / 2) < mpf(10) ** -49


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
        (("forward_kl", "0.5", "1", 0), "digits"),
        (("entropy", "0.5", "1"), "correct_fraction"),
        (("entropy", "0.5", "1", 15, "1.5"), "correct_fraction"),
        (("no_such", "0.5", "1"), "unknown regularizer"),
    ],
)
def test_bad_input_is_named(arguments, word):
    with pytest.raises(InputError, match=f"^{word}"):
        population_optimum(*arguments)
