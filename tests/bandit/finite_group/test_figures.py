"""Which runs the metrics are of."""

import math

import pandas as pd
import pytest

from bandit.finite_group.analysis import final_table
from bandit.finite_group.figures import metrics


def test_metrics_are_those_of_the_largest_coefficient_and_of_unregularized_rl():
    """Three seeds, 0.01 apart; fresh groups are 0.1 above the exact objective of the same coefficient."""
    runs = [("none", 0.0, "exact", 0.9), ("cokl", 0.5, "exact", 0.5), ("cokl", 0.1, "exact", 0.2)]
    runs += [("cokl", 0.1, "fresh", 0.3), ("cokl", 0.5, "fresh", 0.6)]
    table = pd.DataFrame(
        [
            {
                "seed": seed, "method": method, "beta": beta, "groups": groups, "optimizer_steps": 1, "step": step,
                "group_size": size if groups == "fresh" else math.inf, "zero_correct_rate": 0.5, "passes": 1.0,
                **dict.fromkeys(("p_correct", "coverage_at_8", "coverage_at_8_correct", "conditional_kl"),
                                (level + 0.01 * (seed - 1)) * (step > 0)),
            }
            for seed in range(3)
            for method, beta, groups, level in runs
            for size in ((2.0, 4.0) if groups == "fresh" else (0.0,))
            for step in (0, 50)
        ]
    )  # fmt: skip
    drawing = metrics(final_table(table), 3)
    assert "β = 0.5:" in drawing.caption
    shown = drawing.marks[drawing.marks["panel"] == "p_correct, mu = 1"]
    assert shown[shown["style"] == "cokl fresh"]["y"].tolist() == pytest.approx([0.6, 0.6])
    assert shown[shown["style"] == "cokl exact"]["y"].tolist() == pytest.approx([0.5])
    assert shown[shown["style"] == "none"]["y"].tolist() == pytest.approx([0.9])
    assert set(drawing.marks[drawing.marks["style"] == "none"]["panel"]) == {"p_correct, mu = 1"}
