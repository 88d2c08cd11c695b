"""Means, intervals and tables against SciPy's and against hand-written text."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from cokl.support.statistics import (
    csv_text,
    markdown_table,
    mean_and_half_width,
    plain_markdown_table,
    spread_column,
    with_spread,
)


@pytest.mark.parametrize("size", [2, 3, 10])
def test_the_half_width_is_that_of_the_t_interval(size):
    values = np.random.default_rng(size).normal(3, 2, size)
    mean, half_width = mean_and_half_width(pd.Series(values))
    interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (mean - half_width, mean + half_width) == pytest.approx((interval.low, interval.high), rel=1e-12)


def test_a_single_value_has_no_interval():
    assert mean_and_half_width(pd.Series([2.5])) == (2.5, math.inf)


@pytest.mark.parametrize(
    ("value", "spread", "digits", "written"),
    [
        (0.12345, 0.0678, 3, "0.123 ± 0.068"),
        (12.0, 0.0, 1, "12.0 ± 0.0"),
        (0.5, math.inf, 2, "0.50"),
        (0.5, math.nan, 2, "0.50"),
        (-0.0001, 0.01, 2, "0.00 ± 0.01"),
        (-1.26, 0.04, 1, "-1.3 ± 0.0"),
    ],
)
def test_a_mean_is_written_with_its_spread_where_there_is_one(value, spread, digits, written):
    assert with_spread(value, spread, digits) == written


def test_a_column_is_written_with_its_half_widths():
    frame = pd.DataFrame({"p": [1.26, math.nan, 2.0], "p_half_width": [0.14, math.nan, math.inf]})
    assert spread_column(frame, "p") == ["1.3 ± 0.1", "", "2.0"]
    assert spread_column(frame, "p", 2) == ["1.26 ± 0.14", "", "2.00"]


def test_a_table_is_padded_markdown():
    frame = pd.DataFrame({"method": ["cokl", "none"], "p": [0.5, 10.25]})
    assert markdown_table(frame).splitlines() == [
        "| method | p     |",
        "|--------|-------|",
        "| cokl   | 0.5   |",
        "| none   | 10.25 |",
    ]
    assert markdown_table(frame).endswith("|\n")


def test_a_cell_keeps_to_its_cell():
    written = plain_markdown_table(("a", "b|c"), [(1, "x|y"), ("two\nlines", None)], rule=(" --- ", " ---: "))
    assert written == "| a | b\\|c |\n| --- | ---: |\n| 1 | x\\|y |\n| two lines | None |"
    assert plain_markdown_table(("a", "b"), []) == "| a | b |\n|---|---|"


def test_a_csv_has_six_digits_of_small_numbers_too_and_no_negative_zero():
    frame = pd.DataFrame({"seed": [1, 2, 3], "kl": [123456.789, 2.5e-7, -0.0]})
    assert csv_text(frame).splitlines() == ["seed,kl", "1,123457", "2,2.5e-07", "3,0"]
