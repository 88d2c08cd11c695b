"""Whether two tables are the same, to 1e-6."""

from __future__ import annotations

import pandas as pd


def assert_same(measured: pd.DataFrame, expected: pd.DataFrame) -> None:
    """The same columns, and the same rows in the same order, numbers to 1e-6."""
    assert set(measured.columns) == set(expected.columns)
    expected = expected[list(measured.columns)]
    pd.testing.assert_frame_equal(measured, expected, check_dtype=False, rtol=0, atol=1e-6)
