"""Gradients where numbers are extreme: logits far from zero."""

import dataclasses

import numpy as np
import pytest
import torch

from bandit.engine.exact import Objective
from bandit.engine.fused import FusedObjective
from bandit.engine.reference import pretrain, seed_task
from cokl import methods


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
