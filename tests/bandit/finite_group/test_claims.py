"""The verdicts on policies trained in groups: both sides of each claim."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from bandit.finite_group.analysis import of_policies

SPREAD = 0.01 * np.array([-1, -0.5, 0, 0.5, 1])
"""Five seeds' slopes about their mean: t(0.975, 4) = 2.776445 makes the half-width 0.009817."""


def policies(**shifts: float) -> pd.DataFrame:
    """Five seeds' rows; shifts, by NAME_GROUPS_MU of `of_policies`' measurements, are half a unit of luck apart."""
    base = {"correct": 0.9, "kl": 0.3}
    kinds = [("exact", math.inf, mu) for mu in (1, 4)]
    kinds += [("fresh", size, mu) for size in (1.0, 8.0, 64.0) for mu in (1, 4)] + [("cached", 8.0, 1)]
    rows = []
    for seed, (groups, size, mu), step in itertools.product(range(5), kinds, (50, 150, 600)):
        luck = 0.0 if groups == "exact" else SPREAD[seed]
        of = {name: base[name] + shifts.get(f"{name}_{groups}_{size:g}_{mu}_{step}", 0.0) + luck for name in base}
        rows.append(
            {
                "seed": seed, "method": "cokl", "beta": 0.3, "groups": groups, "group_size": size, "step": step,
                "optimizer_steps": mu, "passes": step * 0.064 / mu, "coverage_at_8": 0.5, "zero_correct_rate": 0.1,
                "p_correct": of["correct"], "conditional_kl": of["kl"],
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


CORRECT, LARGEST, PAPERS, END, OFF = range(5)
"""`of_policies`' claims; half-widths are 0.0098 where groups are compared with the exact objective."""


@pytest.mark.parametrize(
    ("claim", "shifts", "verdict"),
    [
        (CORRECT, {"correct_fresh_1_1_600": 0.0100}, "held"),
        (CORRECT, {"correct_fresh_1_1_600": 0.0096}, "undecided"),
        (CORRECT, {"correct_fresh_1_1_600": -0.0096}, "undecided"),
        (CORRECT, {"correct_fresh_1_1_600": -0.0100}, "not held"),
        (CORRECT, {"correct_fresh_1_1_600": 0.0100, "correct_fresh_64_1_600": -0.1}, "depends"),
        (LARGEST, {"kl_fresh_64_1_600": 0.0100}, "held"),
        (LARGEST, {"kl_fresh_64_1_600": 0.0096}, "undecided"),
        (LARGEST, {"kl_fresh_64_1_600": -0.0100}, "not held"),
        (PAPERS, {"kl_fresh_8_1_150": 0.0100}, "held"),
        (PAPERS, {"kl_fresh_8_1_600": 0.0100}, "undecided"),
        (PAPERS, {"kl_cached_8_1_150": 0.0100}, "not held"),
        (END, {"kl_cached_8_1_600": 0.0100}, "held"),
        (END, {"kl_cached_8_1_150": 0.0100}, "undecided"),
        (END, {"kl_fresh_8_1_600": 0.0100}, "not held"),
        (OFF, {"kl_fresh_8_4_600": 0.01, "correct_fresh_8_4_600": -0.01}, "held"),
        (OFF, {"kl_fresh_8_4_600": 0.01}, "undecided"),
        (OFF, {"kl_fresh_8_4_600": 0.01, "correct_fresh_8_4_600": 0.01}, "not held"),
        (OFF, {"kl_fresh_64_4_600": 0.01, "correct_fresh_1_4_600": -0.01}, "undecided"),
    ],
)
def test_both_sides_of_each_claim_on_trained_policies(claim, shifts, verdict):
    claims = of_policies(policies(**shifts))
    assert len(claims) == 5
    assert claims[claim].verdict == verdict


def test_neither_a_smaller_coefficient_nor_another_method_has_a_part_in_the_claims_on_policies():
    """Theirs would turn every verdict."""
    shifts = {"correct_fresh_1_1_600": 0.01, "kl_fresh_64_1_600": 0.01, "kl_fresh_8_1_150": 0.01}
    shifts |= {"kl_cached_8_1_600": 0.01, "kl_fresh_8_4_600": 0.01, "correct_fresh_8_4_600": -0.01}
    table, other = policies(**shifts), policies(**{name: -shift for name, shift in shifts.items()})
    assert [claim.verdict for claim in of_policies(table)] == ["held"] * 5
    assert [claim.verdict for claim in of_policies(other)] == ["not held"] * 5
    mixed = [other.assign(beta=0.1), table, other.assign(method="correct_forward_kl")]
    assert of_policies(pd.concat(mixed, ignore_index=True)) == of_policies(table)


def test_what_was_not_trained_is_not_judged():
    table = policies()
    few = of_policies(table[(table["groups"] != "cached") & (table["optimizer_steps"] == 1)])
    assert [claim.name for claim in few] == ["more correct", "largest groups"]
    assert of_policies(table.assign(method="reverse_kl")) == []
    assert of_policies(table[table["seed"] < 3])[CORRECT].verdict is None
