"""The heads of the tables' columns, each above its own numbers."""

import pandas as pd

from bandit.plasticity.report import readable


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
