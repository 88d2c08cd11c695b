"""What every registered regularizer keeps; a new file is tested here without being named.

A regularizer that may be negative, or is not zero at the reference, says so in one of the two tables.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights
from cokl.policy import Policy
from cokl.regularizers import Regularizer
from tests.cokl.cases import (
    VARIANTS,
    Case,
    assert_close,
    cases,
    cases_with_impossible_actions,
    every_regularizer,
    moderate_cases,
)


def negative_log_mass(reference: Policy) -> Tensor:
    """-log q, zero where nothing is correct."""
    return torch.where(reference.correct.sizes > 0, -reference.log_mass, 0)


def negative_entropy(reference: Policy) -> Tensor:
    """Sum of p log p for the reference."""
    return -torch.special.entr(reference.probs).sum(-1)


LOWER_BOUNDS = {
    "entropy": lambda reference: torch.full_like(reference.mass, -math.log(reference.logits.shape[-1])),
    "cokl_without_term1": lambda reference: torch.full_like(reference.mass, -math.inf),
    "correct_reverse_kl": negative_log_mass,
}
VALUES_AT_REFERENCE = {
    "entropy": negative_entropy,
    "cokl_without_term1": lambda reference: -negative_log_mass(reference),
    "correct_forward_kl": negative_log_mass,
    "correct_reverse_kl": negative_log_mass,
}


def faces(variant: str, case: Case) -> tuple[Tensor, Tensor]:
    """Values (B) and logit gradients (B, A)."""
    policies = case.policies()
    return VARIANTS[variant].value(*policies), VARIANTS[variant].logit_gradient(*policies)


@every_regularizer
def test_has_a_docstring_and_a_label_for_figures(variant: str):
    assert VARIANTS[variant].__doc__
    assert VARIANTS[variant].label.strip()
    assert variant.startswith(VARIANTS[variant].name)


def test_labels_are_distinct():
    labels = {regularizer.name: regularizer.label for regularizer in VARIANTS.values()}
    assert len(set(labels.values())) == len(labels)


@every_regularizer
@given(case=cases())
def test_value_has_one_number_per_context_and_keeps_its_lower_bound(variant: str, case: Case):
    policy, reference = case.policies()
    value = VARIANTS[variant].value(policy, reference)
    assert value.shape == policy.logits.shape[:-1]
    assert bool((value >= LOWER_BOUNDS.get(variant, lambda reference: 0)(reference) - 1e-10).all())


@every_regularizer
@given(case=cases())
def test_value_at_the_reference_is_zero_or_the_documented_constant(variant: str, case: Case):
    _, reference = case.policies()
    value = VARIANTS[variant].value(reference, reference)
    expected = VALUES_AT_REFERENCE.get(variant, lambda reference: torch.zeros_like(reference.mass))(reference)
    assert_close(value, expected, 1e-10)


@every_regularizer
@given(case=cases())
def test_gradient_sums_to_zero_over_actions(variant: str, case: Case):
    gradient = faces(variant, case)[1]
    assert gradient.shape == case.logits.shape
    assert_close(gradient.sum(-1), torch.zeros(len(gradient), dtype=gradient.dtype), 1e-10)


@every_regularizer
@given(case=cases(), data=st.data())
def test_permuting_actions_permutes_the_gradient(variant: str, case: Case, data: st.DataObject):
    order = data.draw(st.permutations(range(case.mask.shape[-1])))
    value, gradient = faces(variant, case)
    permuted_value, permuted_gradient = faces(variant, case.map(lambda x: x[:, order]))
    assert_close(permuted_value, value, 1e-10)
    assert_close(permuted_gradient, gradient[:, order], 1e-10)


@every_regularizer
@given(case=moderate_cases(), constants=st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)))
def test_constants_added_to_the_logits_change_nothing(variant: str, case: Case, constants: tuple[float, float]):
    shifted = Case(case.logits + constants[0], case.reference_logits + constants[1], case.mask)
    for actual, expected in zip(faces(variant, shifted), faces(variant, case), strict=True):
        assert_close(actual, expected, 1e-10)


@every_regularizer
@given(case=cases())
def test_other_contexts_in_the_batch_change_nothing(variant: str, case: Case):
    """An all-correct and an empty context pad every correct set to its largest size."""
    actions = case.mask.shape[-1]
    others = Case(np.ones((2, actions)), np.zeros((2, actions)), np.array([[True] * actions, [False] * actions]))
    padded = Case(
        np.concatenate([case.logits, others.logits]),
        np.concatenate([case.reference_logits, others.reference_logits]),
        np.concatenate([case.mask, others.mask]),
    )
    for actual, expected in zip(faces(variant, padded), faces(variant, case), strict=True):
        assert_close(actual[: len(case.mask)], expected, 1e-12)


@every_regularizer
@given(case=cases() | cases_with_impossible_actions())
def test_default_gradient_equals_the_override_and_carries_no_gradient(variant: str, case: Case):
    """Wherever the value is finite: with logits of -inf in the policy, the reference or both it need not be."""
    policy, reference = case.policies()
    default = Regularizer.logit_gradient(VARIANTS[variant], policy, reference)
    finite = VARIANTS[variant].value(policy, reference).isfinite()
    assert_close(default[finite], VARIANTS[variant].logit_gradient(policy, reference)[finite], 1e-10)
    assert not default.requires_grad


@every_regularizer
@given(case=cases(allow_empty=False))
def test_a_step_against_the_gradient_lowers_the_value(variant: str, case: Case):
    policy, reference = case.policies()
    gradient = VARIANTS[variant].logit_gradient(policy, reference)
    steep = gradient.square().sum(-1) > 1e-6
    step = 1e-4 / gradient.abs().amax(-1, keepdim=True).clamp_min(1)
    moved = Policy(policy.logits - step * gradient, policy.correct)
    drop = VARIANTS[variant].value(policy, reference) - VARIANTS[variant].value(moved, reference)
    assert bool((drop[steep] > 0).all())


@st.composite
def response_groups(draw: st.DrawFn, groups: int, size: int) -> ResponseGroups:
    """Groups with log-likelihoods down to those of long sequences, whose current one carries a gradient."""
    rows = st.lists(st.lists(st.floats(-5e3, 0), min_size=size, max_size=size), min_size=groups, max_size=groups)
    verdicts = st.lists(st.lists(st.booleans(), min_size=size, max_size=size), min_size=groups, max_size=groups)
    log_probs, behavior, reference = (torch.tensor(draw(rows), dtype=torch.float64) for _ in range(3))
    rewards = torch.tensor(draw(verdicts), dtype=torch.float64)
    on_policy = draw(st.booleans())
    return ResponseGroups(log_probs.requires_grad_(), rewards, None if on_policy else behavior, reference)


@every_regularizer
@given(groups=st.integers(1, 3), size=st.integers(1, 4), data=st.data())
def test_surrogate_weights_are_finite_per_response_and_carry_no_gradient(
    variant: str, groups: int, size: int, data: st.DataObject
):
    reference, rollout = (data.draw(response_groups(groups, size)) for _ in range(2))
    if not VARIANTS[variant].streams:
        return
    weights = VARIANTS[variant].surrogate_weights(reference, rollout, SurrogateConfig())
    assert isinstance(weights, SurrogateWeights)
    streams = [weight for weight in weights if weight is not None]
    assert streams
    for weight in streams:
        assert weight.shape == (groups, size)
        assert not weight.requires_grad
        assert bool(weight.isfinite().all())
