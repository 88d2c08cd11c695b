"""Numbers that others publish or that another library computes: none of them comes from this code or its oracles."""

import math
from fractions import Fraction

import pytest
import torch

from cokl import regularizers
from cokl.metrics import expected_zero_correct_rate
from cokl.policy import CorrectSet, Policy

ONE, OTHER = (0.1, 0.9), (0.9, 0.1)


def policy(probs: tuple[float, ...], correct: tuple[bool, ...] | None = None) -> Policy:
    mask = torch.tensor([correct or (True,) + (False,) * (len(probs) - 1)])
    return Policy(torch.tensor([probs], dtype=torch.float64).log(), CorrectSet.from_mask(mask))


@pytest.mark.parametrize(("name", "value"), [("forward_kl", 1.75777966), ("reverse_kl", 1.75777966),
                                             ("jensen_shannon", 0.36806421)])  # fmt: skip
def test_trls_generalized_jensen_shannon_divergences(name, value):
    """Of (.1, .9) against (.9, .1), at its coefficients 0, 1 and 1/2."""
    assert float(regularizers.get(name).value(policy(ONE), policy(OTHER))) == pytest.approx(value, abs=5e-9)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ((0.2, 0.3, 0.5), (0.5, 0.3, 0.2)),
        ((0.0, 0.4, 0.6), (0.1, 0.3, 0.6)),
        ((0.1, 0.3, 0.6), (0.0, 0.4, 0.6)),
        ((0.0, 1.0, 0.0), (0.0, 1.0, 0.0)),
        ((1e-300, 0.5, 0.5), (0.25, 0.25, 0.5)),
    ],
)
def test_categorical_kls_are_those_of_a_library_of_distributions(ours, theirs):
    """With the conventions of such libraries: 0 log 0 is 0, and mass where the other has none makes it infinite."""
    categorical = [torch.distributions.Categorical(torch.tensor([p], dtype=torch.float64)) for p in (ours, theirs)]
    expected = []
    for p, q in ((ours, theirs), (theirs, ours)):
        terms = [math.inf if b == 0 else a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0]
        expected.append(sum(terms))
    if 0 not in ours and 0 not in theirs:  # elsewhere that library clamps its zeros
        assert float(torch.distributions.kl_divergence(*categorical)) == pytest.approx(expected[0])
    for name, value in zip(("reverse_kl", "forward_kl"), expected, strict=True):
        assert float(regularizers.get(name).value(policy(ours), policy(theirs))) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(("draws", "k"), [(5, 1), (8, 3), (10, 10), (20, 4)])
@pytest.mark.parametrize("mass", [Fraction(1, 10), Fraction(1, 2), Fraction(99, 100)])
def test_a_group_is_solved_as_often_as_humanevals_unbiased_pass_at_k_says(draws, k, mass):
    """Its mean over the exact binomial of n responses is 1 - (1 - Z)^k; ours is one minus the zero-correct rate."""
    mean = Fraction(0)
    for right in range(draws + 1):
        chance = math.comb(draws, right) * mass**right * (1 - mass) ** (draws - right)
        mean += chance * (1 - Fraction(math.comb(draws - right, k), math.comb(draws, k)))
    found = expected_zero_correct_rate(policy((float(mass), float(1 - mass))), k)
    assert 1 - float(found) == pytest.approx(float(mean), rel=1e-12)
