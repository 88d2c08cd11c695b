"""Tabular softmax policies trained by gradient on exact objectives: does optimisation reach the certified optimum?"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cokl.policy import CorrectSet, Policy
from cokl.regularizers import Regularizer
from cokl.support.errors import InputError


def tabular_reference(masses: np.ndarray, actions: int, correct: int, seed: int) -> Policy:
    """References (C, A), one per entry of `masses` (C,), with Gaussian logits; the first `correct` actions are the
    correct ones. Raises InputError for a mass outside (0, 1) and unless 1 <= correct < actions."""
    if not ((masses > 0) & (masses < 1)).all():
        raise InputError(f"masses: expected the reference's correctness in (0, 1), got {masses}")
    if not 1 <= correct < actions:
        raise InputError(f"correct: expected between 1 and {actions - 1} correct actions, got {correct}")
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(actions, generator=generator, dtype=torch.float64).expand(len(masses), -1)
    mask = (torch.arange(actions) < correct).expand(len(masses), -1)
    policy = Policy(logits, CorrectSet.from_mask(mask))
    target = torch.from_numpy(np.log(masses) - np.log1p(-masses))
    shift = target - (policy.log_mass - policy.log_incorrect_mass)
    return Policy(logits + shift[:, None] * mask, policy.correct)


def train_tabular(regularizer: Regularizer, reference: Policy, betas: Tensor, steps: int = 4000) -> Policy:
    """Policies (C, A) after `steps` of Adam on Z - beta D with its exact logit gradient, started at the reference.

    betas: (C,). Each context is a problem of its own: the objective is divided by max(1, beta), and the step decays to
    zero on a cosine, so that an interior optimum is met to many digits. Raises ArithmeticError where it is not finite.
    """
    logits = reference.logits.clone()
    scale = 1 / betas.clamp_min(1)[:, None]
    first, second = torch.zeros_like(logits), torch.zeros_like(logits)
    for step in range(1, steps + 1):
        policy = Policy(logits, reference.correct)
        ascent = policy.mass_logit_gradient() - betas[:, None] * regularizer.logit_gradient(policy, reference)
        if not ascent.isfinite().all():
            raise ArithmeticError(f"the ascent on {regularizer.name} is not finite in step {step} of {steps}")
        first = 0.9 * first + 0.1 * scale * ascent
        second = 0.99 * second + 0.01 * (scale * ascent).square()
        rate = 0.025 * (1 + np.cos(np.pi * step / steps))
        update = first / (1 - 0.9**step) / ((second / (1 - 0.99**step)).sqrt() + 1e-12)
        logits = logits + rate * update
    return Policy(logits, reference.correct)
