"""Whether two tables are the same, to 1e-6 unless said otherwise."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from bandit.lab import Analysis, on_screen, write


def assert_same(measured: pd.DataFrame, expected: pd.DataFrame, to: float = 1e-6, relative: float = 0.0) -> None:
    """The same columns, and the same rows in the same order, numbers alike."""
    assert set(measured.columns) == set(expected.columns)
    expected = expected[list(measured.columns)]
    pd.testing.assert_frame_equal(measured, expected, check_dtype=False, rtol=relative, atol=to)


def page_and_screen(analysis: Analysis) -> tuple[str, str]:
    """results.md and what a terminal shows."""
    with TemporaryDirectory() as temporary:
        write(analysis, "Lab", Path(temporary))
        return (Path(temporary) / "results.md").read_text(encoding="utf-8"), on_screen(analysis, Path("runs"))
