"""What the page's trade-off is drawn from: each number from its own column."""

import pandas as pd
import pytest

from bandit.sweep.section import _setting


def test_each_curve_is_of_its_own_column():
    columns = {"p_correct": 0.9, "coverage_at_4": 0.3, "coverage_at_4_correct": 0.6, "conditional_kl": 1.5}
    rows = pd.DataFrame([{"seed": seed, "method": "cokl", "beta": 0.1, "step": 5,
                          **{name: value + 0.01 * seed for name, value in columns.items()}}
                         for seed in (-1, 1)])  # fmt: skip
    found = _setting("cokl", 0.1, rows, "coverage_at_4", False)
    means = [found[name] for name in ("correctness", "coverage", "covered", "kl")]
    assert means == [[pytest.approx(value)] for value in columns.values()]
