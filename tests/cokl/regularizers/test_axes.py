"""Any number of leading axes: each context of a stack has what it has alone; and everything stays on its device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from cokl import metrics
from cokl.decomposition import decompose_kl
from cokl.floor import floor_logit_gradient, floor_value
from cokl.policy import CorrectSet, Policy
from tests.cokl.cases import VARIANTS, every_regularizer

SHAPE = (2, 3, 5)
RNG = np.random.default_rng(3)
MASK = np.array(
    [[[1, 0, 0, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 0, 0]], [[0, 0, 0, 0, 1], [1, 0, 1, 0, 1], [0, 1, 0, 1, 0]]]
)
LOGITS, REFERENCE = (RNG.normal(0, 2, SHAPE) for _ in range(2))


def pair(place: tuple[int, ...]) -> tuple[Policy, Policy]:
    """Policy and reference of the stack, of one of its batches (one index) or of one context (two)."""
    correct = CorrectSet.from_mask(torch.from_numpy(MASK[place].astype(bool)))
    policy, reference = (Policy(torch.from_numpy(logits[place].copy()), correct) for logits in (LOGITS, REFERENCE))
    return policy, reference


def stays_in_its_context(function: Callable[[Policy, Policy], Tensor], axes: int = 2) -> None:
    """What `function` gives for a stack is, at each place of its first `axes` axes, what it gives there alone."""
    whole = function(*pair(()))
    for place in np.ndindex(*SHAPE[:axes]):
        torch.testing.assert_close(whole[place], function(*pair(place)), rtol=1e-12, atol=1e-14)


VIEWS = ["log_probs", "probs", "mass", "log_mass", "log_incorrect_mass"]


@pytest.mark.parametrize("view", VIEWS)
def test_views_of_a_policy(view: str):
    stays_in_its_context(lambda policy, _: getattr(policy, view))


def test_gradients_of_the_mass_and_the_conditionals():
    stays_in_its_context(lambda policy, _: policy.mass_logit_gradient())
    stays_in_its_context(lambda policy, _: policy.log_mass_logit_gradient())
    stays_in_its_context(
        lambda policy, _: policy.correct.add_to(torch.zeros_like(policy.logits), policy.conditional_probs)
    )
    stays_in_its_context(lambda policy, _: policy.correct.mask)
    stays_in_its_context(lambda policy, _: policy.correct.sizes)


@every_regularizer
def test_values_and_gradients_of_regularizers(variant: str):
    stays_in_its_context(VARIANTS[variant].value)
    stays_in_its_context(VARIANTS[variant].logit_gradient)


@pytest.mark.parametrize("term", ["mass", "correct", "incorrect", "total"])
def test_terms_of_the_decomposition(term: str):
    stays_in_its_context(lambda policy, reference: getattr(decompose_kl(reference, policy), term))


def test_metrics():
    stays_in_its_context(lambda policy, _: metrics.correctness(policy))
    stays_in_its_context(lambda policy, _: metrics.coverage(policy, 3))
    stays_in_its_context(lambda policy, _: metrics.coverage(policy, 3, conditional=True))
    stays_in_its_context(lambda policy, _: metrics.pass_at_k(policy, 3))
    stays_in_its_context(lambda policy, _: metrics.expected_zero_correct_rate(policy, 3))


def test_the_floors_gate_averages_over_the_last_axis_of_contexts_alone():
    stays_in_its_context(floor_value, axes=1)
    stays_in_its_context(floor_logit_gradient, axes=1)


@pytest.mark.parametrize("valid", [None, torch.ones(2, 3, dtype=torch.bool)])
def test_everything_stays_on_the_device_of_its_inputs(valid: Tensor | None):
    """On the device "meta", which holds shapes alone and mixes with no other."""
    correct = CorrectSet(
        torch.zeros(2, 3, dtype=torch.int64).to("meta"), None if valid is None else valid.to("meta"), 5
    )
    policy = Policy(torch.zeros(2, 5, device="meta"), correct)
    reference = Policy(torch.ones(2, 5, device="meta"), correct)
    assert correct.mask.device.type == "meta"
    assert correct.sizes.device.type == "meta"
    assert policy.log_incorrect_mass.device.type == "meta"
    for regularizer in VARIANTS.values():
        assert regularizer.value(policy, reference).device.type == "meta"
        assert regularizer.logit_gradient(policy, reference).device.type == "meta"


def test_sets_of_no_context_of_one_action_and_of_many():
    none = CorrectSet.from_mask(torch.zeros(0, 4, dtype=torch.bool))
    assert (none.actions.shape, none.mask.shape, none.sizes.shape) == ((0, 1), (0, 4), (0,))
    single = CorrectSet.from_mask(torch.tensor([[True], [False]]))
    assert single.mask.tolist() == [[True], [False]]
    assert single.actions.shape == (2, 1)
    mask = torch.from_numpy(np.random.default_rng(0).random(10_000) < 0.3)
    many = CorrectSet.from_mask(mask)
    assert many.actions.tolist() == np.flatnonzero(mask.numpy()).tolist()
