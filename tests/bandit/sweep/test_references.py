"""What a sweep's networks could have reached: means over inputs of each input's own optimum."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

from bandit.sweep.references import reached_and_optimal

MASSES, BETA, CORRECT_FRACTION = np.array([0.05, 0.3, 0.9]), 0.5, 0.06


def under_forward_kl(q: float) -> float:
    """The best Z of Z - beta * D_KL(Bernoulli(q) || Bernoulli(Z)), searched for."""

    def loss(mass: float) -> float:
        return -mass - BETA * (q * np.log(mass) + (1 - q) * np.log(1 - mass))

    return float(minimize_scalar(loss, bounds=(1e-9, 1 - 1e-9), method="bounded", options={"xatol": 1e-10}).x)


def test_each_input_has_an_optimum_of_its_own():
    """Their mean, which is not the optimum of the mean reference; at the last step, and of what was trained alone."""
    reached = {"none": 0.99, "reverse_kl": 0.8, "forward_kl": 0.7, "cokl": 0.95, "entropy": 0.6}
    table = pd.DataFrame(
        [
            {"seed": seed, "method": method, "beta": BETA * (method != "none"), "step": step,
             "p_correct": (level + sign * 0.03) * (step > 0)}
            for method, level in {"reference": 0.1, **reached}.items()
            for seed, sign in ((0, -1), (1, 1))
            for step in ((0,) if method == "reference" else (0, 50))
        ]
    )  # fmt: skip
    found = reached_and_optimal(table, MASSES, CORRECT_FRACTION).set_index("method")
    expected = {
        "reverse_kl": expit(logit(MASSES) + 1 / BETA).mean(),
        "forward_kl": np.mean([under_forward_kl(q) for q in MASSES]),
        "cokl": 1.0,
        "entropy": expit(logit(CORRECT_FRACTION) + 1 / BETA),
    }
    assert list(found.index) == list(expected)
    assert found["optimum"].to_dict() == pytest.approx(expected, abs=1e-6)
    assert found["p_correct"].to_dict() == pytest.approx({method: reached[method] for method in expected})
    assert found["p_correct_std"].to_list() == pytest.approx([0.03 * np.sqrt(2)] * 4)
