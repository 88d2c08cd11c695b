"""R_G, its derivative and the zero-correct probability, against many digits and against their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from cokl.support.errors import InputError
from theory.recovery import recovery, recovery_derivative, zero_correct_probability


@given(mass=st.floats(1e-12, 1, exclude_max=True), size=st.integers(1, 300))
def test_recovery_equals_its_definition(mass, size):
    with mp.workdps(60 + 16 * size):
        x = 1 - mpf(mass)
        exact = -mp.log(mass) - sum(x**m / m for m in range(1, size + 1))
        if exact > mpf("1e-300"):
            assert abs(mpf(float(recovery(mass, size))) / exact - 1) < 1e-12
        else:
            assert 0 <= float(recovery(mass, size)) < 1e-299


@given(mass=st.floats(1e-12, 1, exclude_max=True), size=st.integers(1, 300))
def test_derivative_and_probability_equal_their_definitions(mass, size):
    with mp.workdps(60):
        missed = (1 - mpf(mass)) ** size
        if missed > mpf("1e-280"):
            assert abs(mpf(float(zero_correct_probability(mass, size))) / missed - 1) < 1e-12
            assert abs(mpf(float(recovery_derivative(mass, size))) / (-missed / mpf(mass)) - 1) < 1e-12


def test_edges_are_finite_and_arrays_broadcast():
    with np.errstate(all="raise", under="ignore"):
        masses, sizes = np.array([5e-324, 1e-300, 0.5, 1 - 2**-53, 1.0]), np.array([[1], [8], [10**9]])
        for function in (recovery, zero_correct_probability):
            values = function(masses, sizes)
            assert values.shape == (3, 5)
            assert np.isfinite(values).all()
            assert (values >= 0).all()
    assert (recovery(1.0, sizes) == 0).all()
    assert (recovery_derivative(1.0, sizes) == 0).all()


@pytest.mark.parametrize("function", [recovery, recovery_derivative, zero_correct_probability])
@pytest.mark.parametrize(
    ("mass", "size", "word"),
    [
        (0.0, 8, "mass"),
        (1.5, 8, "mass"),
        (float("nan"), 8, "mass"),
        (0.5, 0, "group_size"),
        (0.5, np.inf, "group_size"),
    ],
)
def test_bad_input_is_named(function, mass, size, word):
    with pytest.raises(InputError, match=f"^{word}:"):
        function(mass, size)


@pytest.mark.parametrize("function", [recovery, recovery_derivative, zero_correct_probability])
def test_single_precision_is_widened_before_anything_is_computed(function):
    mass, size = np.float32(0.3), np.float32(7)
    assert function(mass, size) == function(float(mass), 7)
    assert function(mass, size).dtype == np.float64
