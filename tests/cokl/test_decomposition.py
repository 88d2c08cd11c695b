"""Eq. 7: the full KL and its three correctness terms, for random and extreme policies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given

from cokl import regularizers
from cokl.decomposition import decompose_kl
from cokl.policy import CorrectSet, Policy
from tests.cokl.cases import Case, assert_close, cases
from tests.oracles import exact


@given(case=cases())
def test_terms_add_up_to_the_full_kl_in_both_directions(case: Case):
    policy, reference = case.policies()
    for source, target, name in ((reference, policy, "forward_kl"), (policy, reference, "reverse_kl")):
        full = regularizers.get(name).value(policy, reference)
        error = (decompose_kl(source, target).total - full).abs() / full.abs().clamp_min(1)
        assert_close(error, torch.zeros_like(error), 1e-12)


def defined_terms(case: Case) -> list[list[float]]:
    """Each term of Eq. 7 for every context, by definition."""
    terms = [
        exact.decomposed_kl(
            exact.softmax(reference_logits, exact.PRECISE), exact.softmax(logits, exact.PRECISE), correct, exact.PRECISE
        )
        for logits, reference_logits, correct in case.contexts()
    ]
    return [[float(value) for value in column] for column in zip(*terms, strict=True)]


@given(case=cases())
def test_each_term_equals_its_definition(case: Case):
    policy, reference = case.policies()
    for term, column in zip(decompose_kl(reference, policy), defined_terms(case), strict=True):
        defined = torch.tensor(column, dtype=torch.float64)
        error = (term - defined).abs() / defined.abs().clamp_min(1)
        assert_close(error, torch.zeros_like(error), 1e-12)


@pytest.mark.parametrize("log_odds", [-5000.0, -700.0, -70.0, 70.0, 700.0, 5000.0])
def test_terms_keep_their_digits_when_one_side_has_almost_no_probability(log_odds: float):
    """Relative to each term itself, down to the smallest float64, not only to the full KL."""
    mask = np.array([[True, True, False, False, False]])
    source = np.array([[0.3, -1.2, 0.7, 0.0, -0.4]]) + log_odds * mask
    case = Case(np.array([[-0.5, 0.1, 2.0, 0.0, 0.9]]), source, mask)
    policy, reference = case.policies()
    for term, (defined,) in zip(decompose_kl(reference, policy), defined_terms(case), strict=True):
        assert term.item() == pytest.approx(defined, rel=1e-10, abs=0)


@given(case=cases())
def test_the_correct_term_is_cokl_weighted_by_the_reference_correctness(case: Case):
    policy, reference = case.policies()
    weighted = reference.mass * regularizers.get("cokl").value(policy, reference)
    assert_close(decompose_kl(reference, policy).correct, weighted, 1e-10)


@given(case=cases(allow_empty=False))
def test_correct_only_forward_kl_is_cokl_minus_log_mass(case: Case):
    """The identity below Eq. 9, and Eq. 9 itself: cross-entropy and log Z are CoKL up to the entropy of pi_ref+."""
    policy, reference = case.policies()
    value = {name: regularizers.get(name).value(policy, reference) for name in regularizers.names()}
    assert_close(value["correct_forward_kl"], value["cokl"] - policy.log_mass, 1e-10)
    entropy = torch.special.entr(reference.conditional_probs).sum(-1)
    cross_entropy = -(reference.conditional_probs * policy.correct_log_probs.clamp_min(-1e300)).sum(-1)
    assert_close(value["cokl_without_term1"] + cross_entropy, value["cokl"] + entropy, 1e-10)


def test_boundary_cases_follow_the_extended_value_convention():
    correct = CorrectSet.from_mask(torch.tensor([True, False, False]))
    sided = Policy(torch.tensor([-torch.inf, 0.0, 0.0]), correct)
    ordinary = Policy(torch.zeros(3), correct)
    assert decompose_kl(sided, ordinary).correct == 0
    assert decompose_kl(sided, ordinary).incorrect == 0
    assert_close(decompose_kl(sided, ordinary).mass, torch.tensor(1.5).log(), 1e-7)
    assert decompose_kl(ordinary, sided).total == torch.inf


@given(case=cases())
def test_float32_is_finite(case: Case):
    assert all(bool(term.isfinite().all()) for term in decompose_kl(*case.policies(torch.float32)))
