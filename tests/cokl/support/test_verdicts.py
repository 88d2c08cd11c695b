"""p-values against SciPy's tests on raw values, Holm's procedure worked by hand, and the seeds that a verdict takes."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cokl.support.statistics import mean_and_half_width
from cokl.support.verdicts import holm, no_verdict, p_value, verdict_on


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8, unique=True), st.floats(-3, 3))
def test_the_p_value_is_that_of_the_t_test(values, against):
    values = np.array(values) + 1e-3 * np.arange(len(values))
    mean, half_width = mean_and_half_width(pd.Series(values))
    expected = stats.ttest_1samp(values, against).pvalue
    assert p_value(mean, half_width, len(values), against) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_the_ends_of_the_p_value():
    assert p_value(3.0, float("inf"), 1) == 1
    assert p_value(3.0, 0.0, 5) == 0
    assert p_value(0.0, 0.0, 5) == 1
    assert p_value(1.0, 1.0, 5) == pytest.approx(0.05)


def test_holm_steps_down():
    # Holm (1979) by hand: 0.005 <= 0.05/4, 0.01 <= 0.05/3, 0.03 > 0.05/2 stops it, although 0.04 <= 0.05.
    assert holm([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]
    assert holm([0.04]) == [True]
    assert holm([0.04, 0.04]) == [False, False]
    assert holm([]) == []


def test_holm_keeps_the_family_wise_error():
    """Eight true hypotheses, 2000 times: some is rejected in about 5%, where uncorrected it would be in a third."""
    p_values = np.random.default_rng(0).random((2000, 8))
    wrong = np.mean([any(holm(list(row))) for row in p_values])
    assert 0.03 < wrong < 0.07
    assert np.mean((p_values <= 0.05).any(axis=1)) > 0.3


def test_few_seeds_are_said():
    assert no_verdict(4) == ""
    assert no_verdict(3).startswith("No verdicts: 3 reported seeds")


@pytest.mark.parametrize(
    ("mean", "half_width", "seeds", "verdict"),
    [
        (1.0, 0.9, 4, "held"),
        (-1.0, 0.9, 4, "not held"),
        (1.0, 1.1, 4, "undecided"),
        (-1.0, 1.1, 10, "undecided"),
        (0.0, 0.0, 5, "undecided"),
        (1e-9, 0.0, 5, "held"),
        (1.0, 0.01, 3, None),
        (1.0, float("inf"), 4, "undecided"),
    ],
)
def test_a_verdict_takes_four_seeds_and_an_interval_on_one_side_of_zero(mean, half_width, seeds, verdict):
    assert verdict_on(mean, half_width, seeds) == verdict


def test_one_seed_is_said_in_the_singular():
    assert no_verdict(1) == "No verdicts: 1 reported seed is for looking; a verdict takes 4."
    assert no_verdict(5) == ""


def test_holm_takes_its_error_and_rejects_at_the_bound():
    assert holm([0.05]) == [True]
    assert holm([0.025, 0.05]) == [True, True]
    assert holm([0.02, 0.5], alpha=0.01) == [False, False]


@pytest.mark.parametrize(("half_width", "seeds"), [(0.1, 1), (float("inf"), 5), (float("nan"), 5)])
def test_an_unknown_interval_shows_nothing(half_width, seeds):
    assert p_value(3.0, half_width, seeds) == 1.0
