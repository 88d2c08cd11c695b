"""Exact values and logit gradients of every regularizer against the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cokl import regularizers
from cokl.policy import CorrectSet, Policy
from cokl.regularizers import Regularizer
from cokl.support.errors import InputError
from tests.cokl.cases import (
    LARGEST_LOGIT,
    VARIANTS,
    Case,
    assert_close,
    cases,
    cases_with_impossible_actions,
    every_regularizer,
    moderate_cases,
)
from tests.oracles import exact
from tests.oracles.exact import PRECISE


def defined_values(variant: str, case: Case) -> list[float]:
    """The value of each context by definition."""
    return [
        float(
            exact.VALUES[variant](
                exact.softmax(logits, PRECISE), exact.softmax(reference_logits, PRECISE), correct, PRECISE
            )
        )
        for logits, reference_logits, correct in case.contexts()
    ]


def defined_gradients(variant: str, case: Case) -> list[list[float]]:
    """The logit gradient of each context by finite differences of the definition in many digits."""
    return [
        [float(slope) for slope in exact.finite_difference(exact.VALUES[variant], *context)]
        for context in case.contexts()
    ]


def test_every_regularizer_has_a_definition_to_be_compared_with():
    assert set(regularizers.names()) <= set(exact.VALUES)


@every_regularizer
@given(case=cases())
def test_value_equals_definition_for_extreme_logits(variant: str, case: Case):
    assert_close(VARIANTS[variant].value(*case.policies()), defined_values(variant, case), 1e-10)


@every_regularizer
@given(case=cases())
def test_logit_gradient_equals_finite_differences_of_the_definition(variant: str, case: Case):
    assert_close(VARIANTS[variant].logit_gradient(*case.policies()), defined_gradients(variant, case), 1e-10)


@every_regularizer
@given(case=cases())
def test_float32_follows_float64_to_its_rounding(variant: str, case: Case):
    case = case.map(lambda x: x if x.dtype == bool else x.astype(np.float32).astype(np.float64))
    regularizer = VARIANTS[variant]
    for face in (regularizer.value, regularizer.logit_gradient):
        single = face(*case.policies(torch.float32))
        assert single.dtype == torch.float32
        assert bool(single.isfinite().all())
        scale = max(1.0, np.abs(case.logits).max(), np.abs(case.reference_logits).max())
        assert_close(single.double(), face(*case.policies()), 2e-6 * scale)


@every_regularizer
@pytest.mark.parametrize("log_mass", [math.log(1e-30), math.log(1e-300), -LARGEST_LOGIT / 2, -1e-30])
def test_extreme_correctness_of_the_policy_and_of_the_reference(variant: str, log_mass: float):
    """Correct actions hold almost no, or almost all, probability: of the policy, of the reference, of both."""
    mask = np.array([[True, True, False, False, False]])
    ordinary = np.array([[0.3, -1.2, 0.7, 0.0, -0.4]])
    advantage = log_mass if log_mass < -1 else -math.log(-log_mass)
    extreme = ordinary + advantage * mask
    for logits, reference_logits in ((extreme, ordinary), (ordinary, extreme), (extreme, extreme)):
        case = Case(logits, reference_logits, mask)
        assert_close(VARIANTS[variant].value(*case.policies()), defined_values(variant, case), 1e-10)
        assert_close(VARIANTS[variant].logit_gradient(*case.policies()), defined_gradients(variant, case), 1e-10)


@every_regularizer
def test_contexts_without_a_correct_action_are_zero_for_conditional_regularizers(variant: str):
    case = Case(np.array([[1.0, -2.0, 0.5]]), np.array([[0.0, 3.0, -1.0]]), np.zeros((1, 3), dtype=bool))
    value = VARIANTS[variant].value(*case.policies())
    gradient = VARIANTS[variant].logit_gradient(*case.policies())
    assert bool((value == 0).all()) == VARIANTS[variant].conditional
    assert bool((gradient == 0).all()) == VARIANTS[variant].conditional


@every_regularizer
@given(case=cases_with_impossible_actions())
def test_actions_of_probability_zero_give_the_extended_value_and_no_nan(variant: str, case: Case):
    policy, reference = case.policies()
    value = VARIANTS[variant].value(policy, reference)
    assert_close(value, defined_values(variant, case), 1e-10)
    gradient = VARIANTS[variant].logit_gradient(policy, reference)
    defined = torch.tensor(defined_gradients(variant, case), dtype=torch.float64)
    finite = value.isfinite()
    assert_close(gradient[finite], defined[finite], 1e-10)
    assert not bool(gradient.isnan().any())


@every_regularizer
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@given(case=cases_with_impossible_actions(), data=st.data())
def test_autograd_through_value_is_the_closed_form_wherever_the_value_is_finite(
    variant: str, dtype: torch.dtype, tolerance: float, case: Case, data: st.DataObject
):
    """Logits of -inf in the policy, the reference and both; an all-correct and an empty context pad the others' sets.

    The oracle is the definition's finite differences, from which the closed form is tested above in float64 alone.
    """
    actions = case.mask.shape[1]
    if data.draw(st.booleans(), label="padded"):
        rows = (np.zeros((2, actions)), np.zeros((2, actions)), np.array([[True] * actions, [False] * actions]))
        case = Case(*map(np.concatenate, zip((case.logits, case.reference_logits, case.mask), rows, strict=True)))
    policy, reference = case.policies(dtype)
    regularizer = VARIANTS[variant]
    finite = regularizer.value(policy, reference).isfinite()
    defined = torch.tensor(defined_gradients(variant, case), dtype=torch.float64)
    for gradient in (
        Regularizer.logit_gradient(regularizer, policy, reference),
        regularizer.logit_gradient(policy, reference),
    ):
        assert gradient.dtype == dtype
        assert_close(gradient[finite], defined[finite], tolerance)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_jensen_shannon_of_equal_policies_is_not_below_zero_and_keeps_its_gradient(dtype: torch.dtype):
    """In bfloat16 its terms round to -0.001 in sum."""
    correct = CorrectSet.from_mask(torch.arange(50) < 5)
    regularizer = regularizers.get("jensen_shannon")
    for seed in range(20):
        logits = torch.randn(50, generator=torch.Generator().manual_seed(seed)).to(dtype)
        reference = Policy(logits, correct)
        near = Policy(
            logits + torch.randn(50, generator=torch.Generator().manual_seed(-1 - seed)).to(dtype) / 8, correct
        )
        assert float(regularizer.value(reference, reference)) >= 0
        default = Regularizer.logit_gradient(regularizer, near, reference)
        torch.testing.assert_close(default, regularizer.logit_gradient(near, reference), rtol=0.1, atol=2e-3)
        assert default.abs().sum() > 0


@every_regularizer
@given(case=moderate_cases(), runs=st.integers(1, 3), shared_axis=st.booleans())
def test_runs_axis_broadcasts_against_one_reference(variant: str, case: Case, runs: int, shared_axis: bool):
    """Logits (R, B, A) against a reference (1, B, A), with correct sets given as (B, A) or as (1, B, A)."""
    mask = torch.from_numpy(case.mask)
    correct = CorrectSet.from_mask(mask[None] if shared_axis else mask)
    policy, reference = case.policies()
    scales = 1 / torch.arange(1.0, runs + 1, dtype=torch.float64)
    stacked = Policy(policy.logits * scales[:, None, None], correct)
    shared = Policy(reference.logits[None], correct)
    regularizer = VARIANTS[variant]
    values, gradients = regularizer.value(stacked, shared), regularizer.logit_gradient(stacked, shared)
    assert gradients.shape == stacked.logits.shape
    for run, scale in enumerate(scales):
        alone = Policy(policy.logits * scale, policy.correct)
        assert_close(values.expand(runs, *values.shape[1:])[run], regularizer.value(alone, reference), 1e-12)
        assert_close(gradients[run], regularizer.logit_gradient(alone, reference), 1e-12)


@pytest.mark.parametrize(
    ("variant", "value"),
    [
        ("reverse_kl", lambda probs, log_ratios: (probs * log_ratios).sum()),
        ("correct_reverse_kl", lambda probs, log_ratios: (probs * log_ratios)[:2].sum() / probs[:2].sum()),
    ],
)
def test_a_reverse_kls_gradient_where_the_reference_has_no_mass_is_the_limit_of_small_masses(variant, value):
    """The oracle: autograd on the definition, up to log Z, which stays finite; the reference's logit at -100, -1000 and
    -10000: signs, growth.
    """
    correct = CorrectSet.from_mask(torch.tensor([True, True, False, False]))
    logits = torch.tensor([0.4, -0.3, 1.1, -torch.inf], dtype=torch.float64)

    def reference_with(lacking):
        return torch.tensor([0.2, lacking, -0.5, 0.7], dtype=torch.float64)

    steps = []
    for lacking in (-1e2, -1e3, -1e4):
        theta = logits[:3].clone().requires_grad_()
        log_probs, reference = theta.log_softmax(-1), reference_with(lacking).log_softmax(-1)[:3]
        value(log_probs.exp(), log_probs - reference).backward()
        assert theta.grad is not None
        steps.append(theta.grad)
    still = torch.tensor([False, False, variant == "correct_reverse_kl"])  # the wrong action, given that it is correct
    assert ((steps[1].abs() > 5 * steps[0].abs()) | still).all()
    assert ((steps[2].abs() > 5 * steps[1].abs()) | still).all()
    limit = torch.cat([torch.where(still, 0, steps[2].sign() * torch.inf), torch.zeros(1)])  # nor an impossible one
    found = VARIANTS[variant].logit_gradient(Policy(logits, correct), Policy(reference_with(-torch.inf), correct))
    torch.testing.assert_close(found, limit.to(found), rtol=0, atol=0)


class Wrong(Regularizer):
    name, label = "wrong", "Wrong"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda policy, reference: policy.log_mass.mean(), r"wrong: value returned shape \(\), expected shape \(3,\)"),
        (lambda policy, reference: policy.log_probs, r"returned shape \(3, 4\), expected shape \(3,\)"),
        (lambda policy, reference: 0.5, "returned float, expected shape"),
        (lambda policy, reference: policy.log_mass.detach(), "does not reach the policy"),
    ],
)
def test_a_value_that_would_train_something_else_is_refused_at_the_first_step(monkeypatch, value, message):
    """A mean over contexts trains with the coefficient divided by their number."""
    monkeypatch.setattr(Wrong, "value", lambda self, *policies: value(*policies), raising=False)
    correct = CorrectSet.from_mask(torch.tensor([True, False, True, False]).expand(3, -1))
    policies = (Policy(torch.randn(3, 4, dtype=torch.float64), correct) for _ in range(2))
    with pytest.raises(InputError, match=message):
        Wrong().logit_gradient(*policies)
