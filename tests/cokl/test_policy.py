"""Correctness sets and the views of a policy through them (Eqs. 5-6)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cokl.policy import CorrectSet, Policy, centred, expectation
from tests.cokl.cases import Case, assert_close, cases
from tests.oracles import exact


def dense(correct: CorrectSet, values: torch.Tensor) -> torch.Tensor:
    """Values (B, K) of the correct actions, put back into (B, A)."""
    return correct.add_to(torch.zeros(len(values), correct.num_actions, dtype=values.dtype), values)


@given(case=cases())
def test_views_equal_their_definitions(case: Case):
    policy, _ = case.policies()
    probs, log_masses, log_incorrect, conditionals = [], [], [], []
    for logits, _, correct in case.contexts():
        probabilities = exact.softmax(logits, exact.PRECISE)
        probs.append([float(p) for p in probabilities])
        log_masses.append(float(exact.PRECISE.log(exact.mass(probabilities, correct))))
        log_incorrect.append(float(exact.PRECISE.log(exact.mass(probabilities, exact.opposite(correct)))))
        conditionals.append([float(p) for p in exact.conditioned(probabilities, correct)])
    assert_close(policy.probs, probs, 1e-14)
    assert_close(policy.log_probs.exp(), probs, 1e-11)
    assert_close(policy.log_mass, log_masses, 1e-10)
    assert_close(policy.log_incorrect_mass, log_incorrect, 1e-10)
    assert_close(policy.mass, policy.log_mass.exp(), 1e-11)
    assert_close(dense(policy.correct, policy.conditional_probs), conditionals, 1e-14)
    assert_close(dense(policy.correct, policy.conditional_log_probs.exp()), conditionals, 1e-14)
    assert_close(dense(policy.correct, policy.correct_probs), policy.probs * policy.correct.mask, 0)


@given(case=cases())
def test_mass_gradients_equal_autograd(case: Case):
    policy, _ = case.policies()
    logits = policy.logits.clone().requires_grad_()
    moving = Policy(logits, policy.correct)
    mass_gradient = torch.autograd.grad(moving.mass.sum(), logits)[0]
    assert_close(policy.mass_logit_gradient(), mass_gradient, 1e-14)
    log_mass = Policy(logits, policy.correct).log_mass.masked_fill(policy.correct.sizes == 0, 0)
    assert_close(policy.log_mass_logit_gradient(), torch.autograd.grad(log_mass.sum(), logits)[0], 1e-10)


@given(case=cases())
def test_masks_survive_gathering_into_sets_of_differing_size(case: Case):
    correct = case.correct()
    mask = torch.from_numpy(case.mask)
    assert torch.equal(correct.mask, mask)
    assert torch.equal(correct.sizes, mask.sum(-1))
    assert (correct.valid is None) == (len(set(case.mask.sum(-1))) == 1 and case.mask.any())


@given(case=cases(), data=st.data())
def test_indexing_selects_contexts(case: Case, data: st.DataObject):
    index = data.draw(st.lists(st.integers(0, len(case.mask) - 1), min_size=1, max_size=4))
    policy, _ = case.policies()
    selected, expected = policy[index], case.map(lambda x: x[index]).policies()[0]
    assert torch.equal(selected.log_probs, expected.log_probs)
    assert torch.equal(selected.correct.mask, expected.correct.mask)
    assert torch.equal(selected.log_mass, expected.log_mass)


def test_padding_may_repeat_a_correct_action():
    """Padding holds any index in range: here the second set's padding repeats its own member."""
    actions, valid = torch.tensor([[0, 2], [1, 1]]), torch.tensor([[True, True], [True, False]])
    policy = Policy(torch.tensor([[0.1, 0.2, 0.3], [1.0, 2.0, 3.0]]).double(), CorrectSet(actions, valid, 3))
    assert policy.correct.mask.tolist() == [[True, False, True], [False, True, False]]
    assert_close(policy.mass, (policy.probs * policy.correct.mask).sum(-1), 1e-15)
    assert_close(policy.mass_logit_gradient()[1], policy.probs[1] * (torch.tensor([0, 1, 0]) - policy.mass[1]), 1e-15)


def test_normalised_logits_need_no_second_normalisation():
    log_probs = torch.tensor([[0.5, 0.25, 0.25]]).log()
    policy = Policy.from_log_probs(log_probs, CorrectSet.from_mask(torch.tensor([[True, False, True]])))
    assert policy.log_probs is log_probs
    assert_close(policy.mass, torch.tensor([0.75]), 1e-7)


def test_a_zero_probability_silences_any_value():
    probs, values = torch.tensor([0.0, 0.0, 0.25, 0.75]), torch.tensor([torch.inf, torch.nan, 4.0, 8.0])
    assert expectation(probs, values).item() == 7
    assert centred(probs, values).tolist() == [0, 0, -0.75, 0.75]


@pytest.mark.parametrize("mask", [torch.ones(2, 3), torch.tensor(True), torch.zeros(2, 0, dtype=torch.bool)])
def test_masks_must_be_boolean_with_an_action_axis(mask: torch.Tensor):
    with pytest.raises(ValueError, match=r"correct: expected a boolean mask of shape \(\.\.\., A\)"):
        CorrectSet.from_mask(mask)


def test_policy_and_correct_set_must_agree_on_the_actions():
    with pytest.raises(ValueError, match="correct: expected 4 actions, as the logits have, got 3"):
        Policy(torch.zeros(1, 4), CorrectSet.from_mask(torch.ones(1, 3, dtype=torch.bool)))
