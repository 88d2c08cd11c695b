"""Population optima: closed forms against the objectives that they maximise, in float64 and in many digits.

The best conditional policies leave an objective in Z alone (Theorems 1 and 2); that they are the best is tested too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cokl import regularizers
from cokl.policy import Policy
from cokl.regularizers import Regularizer
from cokl.support.errors import InputError
from tests.cokl.cases import VARIANTS, Case, assert_close, moderate_cases
from tests.oracles.exact import PRECISE
from tests.oracles.optima import REDUCED_PENALTIES

UNBOUNDED = "cokl_without_term1"
BOUNDED = sorted(set(REDUCED_PENALTIES) - {UNBOUNDED})
INTERIOR = ["entropy", "forward_kl", "jensen_shannon", "reverse_kl"]
BETAS = [1e-3, 0.01, 0.1, 0.5, 0.9, 1.0, 1.1, 2.0, 10.0, 100.0, 1e3]
QS = [1e-6, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-3, 1 - 1e-6]
FRACTION = 0.06


MARGIN = PRECISE.mpf("1e-12")


def objective_slope(variant: str, mass: Any, q: float, beta: float) -> Any:
    """Slope of the reduced objective at `mass`, times a positive number, by differences in many digits."""
    step = PRECISE.mpf("1e-25")
    above, below = (
        z - beta * REDUCED_PENALTIES[variant](z, PRECISE.mpf(q), PRECISE.mpf(FRACTION), PRECISE)
        for z in (mass * (1 + step), mass * (1 - step))
    )
    return above - below


def optimum(variant: str, q: float, beta: float) -> float:
    """Z* as a number."""
    return VARIANTS[variant].optimal_mass(q, beta, FRACTION)


@pytest.mark.parametrize("variant", BOUNDED)
@pytest.mark.parametrize("beta", BETAS)
def test_objective_rises_up_to_the_closed_form_and_falls_after_it(variant: str, beta: float):
    """Stability: the slope changes sign within a relative 1e-12 of Z*."""
    for q in QS:
        mass = optimum(variant, q, beta)
        assert 0 < mass <= 1
        assert objective_slope(variant, mass * (1 - MARGIN), q, beta) > 0
        if mass < 1 - 2 * MARGIN:
            assert objective_slope(variant, mass * (1 + MARGIN), q, beta) < 0


@pytest.mark.parametrize("variant", INTERIOR)
def test_full_policy_optima_lie_between_their_limits_and_decrease_in_beta(variant: str):
    """Theorem 2: strictly decreasing from 1 (beta -> 0) to the reference's correctness (beta -> infinity)."""
    q = 0.3
    limit = FRACTION if variant == "entropy" else q
    masses = VARIANTS[variant].optimal_mass(q, np.geomspace(0.03, 1e6, 300), FRACTION)
    assert bool((np.diff(masses) <= 0).all())
    assert bool((np.diff(masses[masses < 1 - 1e-9]) < 0).all())
    assert optimum(variant, q, 1e-3) == pytest.approx(1, abs=1e-3)
    assert optimum(variant, q, 1e9) == pytest.approx(limit, abs=1e-8)
    assert bool((masses > limit).all())


@pytest.mark.parametrize("variant", ["cokl", "correct_forward_kl", "correct_reverse_kl"])
def test_correctness_conditioned_optima_have_no_gap(variant: str):
    masses = VARIANTS[variant].optimal_mass(np.array(QS)[:, None], np.array(BETAS))
    assert masses.shape == (len(QS), len(BETAS))
    assert bool((masses == 1).all())


@pytest.mark.parametrize("beta", [0.1, 0.5, 2.0])
def test_without_term_1_the_objective_is_unbounded_towards_zero_correctness(beta: float):
    assert optimum(UNBOUNDED, 0.3, beta) == 0
    grid = np.geomspace(1e-300, 1, 10_001)
    objective = grid - beta * np.log(grid)
    assert objective[0] > 50 * beta + 1
    assert bool((np.diff(objective[grid < min(beta, 1)]) < 0).all())
    assert bool((np.diff(objective[grid > beta]) > 0).all())


def with_mass(policy: Policy, mass: Tensor) -> Policy:
    """The conditional policies of `policy` with total correctness `mass`, (B)."""
    mask = policy.correct.mask
    correct, incorrect = (policy.logits.masked_fill(~side, -torch.inf).log_softmax(-1) for side in (mask, ~mask))
    logits = torch.where(mask, correct + mass.log()[:, None], incorrect + torch.log1p(-mass)[:, None])
    return Policy(logits, policy.correct)


@pytest.mark.parametrize("variant", BOUNDED)
@given(case=moderate_cases(allow_empty=False, min_actions=2), beta=st.floats(0.05, 20))
def test_no_policy_beats_the_closed_form(variant: str, case: Case, beta: float):
    """Over all policies, not only those with the best conditionals; and the closed form's own policy attains it."""
    mixed = ~case.mask.all(-1)
    policy, reference = Case(case.logits[mixed], case.reference_logits[mixed], case.mask[mixed]).policies()
    regularizer = VARIANTS[variant]
    q = reference.mass.clamp(1e-12, 1 - 1e-12)
    reference = with_mass(reference, q)
    fractions = reference.correct.sizes / reference.logits.shape[-1]
    mass = torch.from_numpy(regularizer.optimal_mass(q.numpy(), beta, fractions.double().numpy()))
    uniform = Policy(torch.zeros_like(reference.logits), reference.correct)
    best = with_mass(uniform if variant == "entropy" else reference, mass)
    objective, other = (p.mass - beta * regularizer.value(p, reference) for p in (best, policy))
    assert bool((other <= objective + 1e-12).all())
    nearby = Policy(best.logits + 1e-3 * policy.logits, policy.correct)
    assert bool((nearby.mass - beta * regularizer.value(nearby, reference) <= objective + 1e-12).all())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"q": math.nan}, "q: expected the reference's correctness in"),
        ({"q": np.array([0.5, -0.1])}, "q: expected the reference's correctness in"),
        ({"beta": 0.0}, "beta: expected a finite coefficient > 0"),
        ({"beta": math.nan}, "beta: expected a finite coefficient > 0"),
        ({"beta": math.inf}, "beta: expected a finite coefficient > 0"),
        ({"correct_fraction": 1.0}, "correct_fraction: expected correct actions over all actions in"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, float], message: str):
    for name in regularizers.names():
        with pytest.raises(ValueError, match=f"^{message}"):
            regularizers.get(name).optimal_mass(**({"q": 0.5, "beta": 1.0, "correct_fraction": FRACTION} | arguments))


def test_entropy_needs_the_size_of_the_action_space():
    with pytest.raises(ValueError, match=r"^correct_fraction: the entropy optimum needs correct actions"):
        regularizers.get("entropy").optimal_mass(0.5, 1.0)


@pytest.mark.parametrize("variant", sorted(REDUCED_PENALTIES))
def test_arrays_broadcast(variant: str):
    masses = VARIANTS[variant].optimal_mass(np.array([[0.2], [0.7]]), np.array([0.5, 1.0, 3.0]), FRACTION)
    expected = [[optimum(variant, q, beta) for beta in (0.5, 1.0, 3.0)] for q in (0.2, 0.7)]
    assert_close(torch.from_numpy(masses), expected, 1e-15)


class Searched(Regularizer):
    """A value alone, without the optimum of the class that it is of."""

    name, label = "searched", "Searched"

    def __init__(self, variant: str) -> None:
        self.value = VARIANTS[variant].value  # type: ignore[method-assign]


@pytest.mark.parametrize("variant", ["cokl", "correct_forward_kl", "forward_kl", "jensen_shannon", "reverse_kl"])
def test_without_a_closed_form_the_optimum_is_searched(variant: str):
    """Regularizers whose best policy has the reference's conditionals, against their closed forms."""
    q, beta = np.array([1e-6, 0.1, 0.5, 0.99])[:, None], np.array([1e-3, 0.05, 0.3, 1.0, 30.0])
    searched = Searched(variant).optimal_mass(q, beta)
    assert searched.shape == (4, 5)
    np.testing.assert_allclose(searched, VARIANTS[variant].optimal_mass(q, beta), rtol=0, atol=2e-8)
    assert f"{Searched(variant).optimal_mass(0.1, 0.3):.6f}" == f"{VARIANTS[variant].optimal_mass(0.1, 0.3):.6f}"
    assert (VARIANTS[variant].has_closed_form, Searched(variant).has_closed_form) == (True, False)


def test_a_value_that_takes_more_actions_than_are_searched_is_a_line():
    table = Searched("cokl")
    table.value = lambda policy, reference: policy.probs.topk(20).values.sum(-1)  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"^searched: RuntimeError in its value with 8 actions, among which [^\n]*: "):
        table.optimal_mass(0.1, 0.3)


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_numbers_give_a_number_and_arrays_an_array(variant: str):
    for q, beta in ((0.1, 0.3), (np.float64(0.1), np.float64(0.3))):
        assert type(VARIANTS[variant].optimal_mass(q, beta, FRACTION)) is float  # of which np.float64 is a subclass
    assert VARIANTS[variant].optimal_mass(0.1, np.array([0.3]), FRACTION).shape == (1,)
