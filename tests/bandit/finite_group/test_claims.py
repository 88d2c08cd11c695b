"""The verdict on Appendix B's recovery: which measurements it takes, and both sides of its tolerance."""

import itertools

import numpy as np
import pandas as pd
import pytest

from bandit.finite_group.claims import judge

SPREAD = 0.01 * np.array([-1, -0.5, 0, 0.5, 1])
"""Five seeds' slopes about their mean: t(0.975, 4) = 2.776445 makes the half-width 0.009817."""


def recovery(slope: float, method: str = "cokl", groups: str = "fresh", optimizer_steps: int = 1) -> pd.DataFrame:
    """Measured is the prediction times each seed's slope, whose mean is `slope`."""
    rows = [
        {
            "seed": seed, "method": method, "beta": 0.3, "groups": groups, "group_size": size, "step": 0,
            "optimizer_steps": optimizer_steps, "predicted": predicted, "predicted_at_rollout": predicted,
            "measured": predicted * (slope + SPREAD[seed]), "standard_error": 0.01,
        }
        for seed, size, predicted in itertools.product(range(5), (1.0, 8.0), (0.1, 0.5))
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("distance", "verdict"),
    [(0.0401, "held"), (0.0403, "undecided"), (0.0597, "undecided"), (0.0599, "not held"), (0.5, "not held")],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_both_sides_of_the_tolerance(distance, verdict, sign):
    (claim,) = judge(recovery(1 + sign * distance))
    assert claim.verdict == verdict
    assert f"at beta 0.3 {1 + sign * distance:.4f} ± 0.0098," in claim.measured
    assert "of 20 measurements" in claim.measured


def test_only_cokls_fresh_filtered_groups_at_the_first_mu_count():
    others = [
        recovery(2.0, method="correct_reverse_kl"),
        recovery(2.0, groups="unfiltered"),
        recovery(2.0, groups="cached"),
        recovery(2.0, optimizer_steps=4),
    ]
    claims = judge(pd.concat([*others, recovery(1.0)]))
    assert [claim.verdict for claim in claims] == ["held"]
    assert judge(pd.concat(others[:3])) == []
