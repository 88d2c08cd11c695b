"""Gradients where numbers are extreme: a reference without some action, and logits far from zero."""

import dataclasses

import numpy as np
import pytest
import torch

from bandit.engine.exact import Objective
from bandit.engine.fused import FusedObjective
from bandit.engine.reference import pretrain, seed_task
from cokl import methods, regularizers
from cokl.policy import CorrectSet, Policy

MASK = torch.tensor([True, False, False, True])


def test_reverse_kl_with_an_action_that_the_reference_lacks_has_the_gradients_limit():
    """The limit is taken by a reference whose probability of that action shrinks, the direction by its signs."""
    correct = CorrectSet.from_mask(MASK[None])
    policy = Policy(torch.tensor([[0.3, -0.2, 0.5, -torch.inf]], dtype=torch.float64), correct)

    def gradient(log_prob):
        logits = torch.tensor([[0.1, 0.4, log_prob, -0.3]], dtype=torch.float64)
        return regularizers.get("reverse_kl").logit_gradient(policy, Policy(logits, correct))

    at_zero, close = gradient(-torch.inf), gradient(-1e6)
    assert at_zero.tolist() == [[-np.inf, -np.inf, np.inf, 0.0]]
    assert torch.equal(at_zero.sign(), close.sign())
    assert torch.isfinite(gradient(-30.0)).all()
    both = Policy(torch.tensor([[0.1, 0.4, 0.2, -torch.inf]], dtype=torch.float64), correct)
    assert torch.isfinite(regularizers.get("reverse_kl").logit_gradient(policy, both)).all()


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
def test_fused_correct_only_reverse_kl_keeps_its_digits_far_from_zero(offset, tiny):
    """A constant on all logits changes no policy; the oracle is the plain path in double precision."""
    config = dataclasses.replace(tiny, methods=("correct_reverse_kl",))
    task = seed_task(config, 0, pretrain(config, 0, "cpu", torch.float32))
    batch, betas = torch.arange(16), torch.tensor([1.0])
    draws = np.random.default_rng(0).integers(-8, 9, size=(1, 16, task.train.correct.num_actions)) / 8
    logits = torch.from_numpy(draws).float() + offset  # eighths, which float32 holds exactly at this offset
    method = methods.get("correct_reverse_kl")
    fused = FusedObjective(method, betas, task.train).gradient(logits.clone(), batch)
    double = dataclasses.replace(
        task.train, inputs=task.train.inputs.double(), reference_log_probs=task.train.reference_log_probs.double()
    )
    exact = Objective(method, betas.double(), double).gradient(logits.double(), batch)
    torch.testing.assert_close(fused.double(), exact, rtol=1e-5, atol=1e-7)
