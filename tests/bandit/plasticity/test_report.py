"""The heads of the tables' columns, each above its own numbers; and which methods are said to miss the match."""

import dataclasses

import pandas as pd
import pytest

from bandit.plasticity.analysis import legend, readable
from tests.bandit.plasticity.test_score import CONFIG, made


def test_each_mean_is_under_its_head():
    means = {"p_correct": 0.9, "plasticity": 0.5, "start": 0.1, "to_half": 120.0, "never": 0.3, "rank_correlation": 0.7}
    frame = pd.DataFrame([{"method": "cokl", **means, **{f"{name}_half_width": 0.0 for name in means}}])
    assert readable(frame).iloc[0].to_dict() == {
        "method": "CoKL",
        "phase-1 correctness": "0.900 ± 0.000",
        "plasticity": "0.500 ± 0.000",
        "new reward at its start": "0.100 ± 0.000",
        "steps to one half": "120 ± 0",
        "inputs below one half at the end": "0.300 ± 0.000",
        "rank correlation": "0.700 ± 0.000",
    }


@pytest.mark.parametrize(("target", "said"), [(0.96, False), (0.9815, False), (0.9825, True), (0.9375, True)])
def test_a_method_that_misses_the_match_by_more_than_two_thousandths_is_named(target, said):
    """Its coefficients end 0.98 and 0.94 correct; unregularized RL has none that could be chosen."""
    text = legend(made(), dataclasses.replace(CONFIG, matched_correctness=target))
    nearest = 0.98 if target > 0.96 else 0.94
    named = f"the nearest one stands for Reverse KL at {nearest:.3f}, Entropy at {nearest:.3f}, CoKL at {nearest:.3f}, "
    assert (named in text) == ("No coefficients enclose" in text) == said
    assert "No regularizer" not in text
