"""The batch-level correctness floor (Eqs. 19-20)."""

from __future__ import annotations

import math

import torch
from hypothesis import given

from cokl.floor import floor_logit_gradient, floor_value, sampled_floor_weights
from cokl.groups import ResponseGroups, SurrogateWeights, surrogate_loss
from cokl.policy import CorrectSet, Policy
from tests.cokl.cases import Case, assert_close, cases, moderate_cases
from tests.oracles import exact


@given(case=cases())
def test_value_equals_its_definition(case: Case):
    logits, reference_logits, corrects = zip(*case.contexts(), strict=True)
    policies, references = ([exact.softmax(row, exact.PRECISE) for row in x] for x in (logits, reference_logits))
    expected = [float(value) for value in exact.floor(policies, references, corrects, exact.PRECISE)]
    assert_close(floor_value(*case.policies()), expected, 1e-10)


@given(case=cases())
def test_logit_gradient_equals_autograd_through_a_fixed_gate(case: Case):
    policy, reference = case.policies()
    logits = policy.logits.clone().requires_grad_()
    value = floor_value(Policy(logits, policy.correct), reference)
    assert_close(floor_logit_gradient(policy, reference), torch.autograd.grad(value.sum(), logits)[0], 1e-10)


@given(case=moderate_cases(allow_empty=False))
def test_gate_is_closed_from_the_reference_correctness_upwards(case: Case):
    _, reference = case.policies()
    better, worse = (
        Policy(reference.logits + sign * reference.correct.mask, reference.correct) for sign in (1.0, -1.0)
    )
    for above in (reference, better):
        assert_close(floor_value(above, reference), torch.zeros_like(reference.mass), 1e-13)
        assert_close(floor_logit_gradient(above, reference), torch.zeros_like(reference.logits), 1e-13)
    if reference.mass.mean() - worse.mass.mean() > 1e-12:
        assert bool((floor_value(worse, reference) > 0).all())


def test_gate_averages_over_contexts_but_not_over_runs():
    """Two runs of two contexts: the first run has lost 0.3 and won 0.1, the second has lost nothing on average."""
    masses = torch.tensor([[0.2, 0.6], [0.3, 0.7]], dtype=torch.float64)
    correct = CorrectSet.from_mask(torch.tensor([[True, False], [True, False]]))
    policy = Policy(torch.stack([masses, 1 - masses], -1).log(), correct)
    reference = Policy(torch.full((1, 2, 2), 0.5, dtype=torch.float64).log(), correct)
    expected = [[-0.1 * 0.5 * math.log(0.2), -0.1 * 0.5 * math.log(0.6)], [0, 0]]
    assert_close(floor_value(policy, reference), expected, 1e-14)
    gradient = floor_logit_gradient(policy, reference)
    assert_close(gradient[0], [[-0.1 * 0.5 * 0.8, 0.1 * 0.5 * 0.8], [-0.1 * 0.5 * 0.4, 0.1 * 0.5 * 0.4]], 1e-14)
    assert bool((gradient[1] == 0).all())


def test_sampled_weights_by_hand():
    """The reference answers 5 of 8 correctly and the policy 2 of 8, so the gate is 3/8."""
    log_probs = torch.full((2, 4), -1.0, dtype=torch.float64)
    reference = ResponseGroups(log_probs, torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]))
    rollout = ResponseGroups(log_probs, torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]]))
    weights = sampled_floor_weights(reference, rollout)
    share = -3 / 8 / 4
    assert_close(weights, [[share, share, share, 0], [share, share, 0, 0]], 1e-15)
    loss = surrogate_loss(SurrogateWeights(weights, None), reference, rollout)
    assert_close(loss, torch.tensor(3 / 8 * 5 / 8).double(), 1e-15)
    assert not sampled_floor_weights(rollout, reference).any()
