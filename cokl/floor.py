"""The batch-level correctness floor (Eqs. 19-20): a one-sided, gated pull on the total correctness.

It is no regularizer of a single context, since its gate averages over the batch, so it stands beside the registry.

Assumption beyond the paper: Eq. 20's `r_ij` and `y_ij` are the reference responses and their rewards, as in Eq. 12.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateWeights
from cokl.policy import Policy, expectation


def sampled_floor_weights(reference: ResponseGroups, rollout: ResponseGroups) -> SurrogateWeights:
    """Weights of L_floor (Eq. 20) for `surrogate_loss`: -g_B r / G on the reference responses, where g_B is Eq. 19."""
    rewards = reference.rewards.to(reference.log_probs.dtype)
    gate = (rewards.mean() - rollout.rewards.to(rewards.dtype).mean()).clamp_min(0)
    return SurrogateWeights(-gate * rewards / rewards.shape[-1], None)


def floor_value(policy: Policy, reference: Policy) -> Tensor:
    """Expectation of Eq. 20 for each context, (..., B): -g_B sum over correct y of pi_ref(y) log pi(y), nats."""
    return -gate(reference.mass, policy.mass) * expectation(reference.correct_probs, policy.correct_log_probs)


def floor_logit_gradient(policy: Policy, reference: Policy) -> Tensor:
    """Gradient of `floor_value` with respect to each context's logits, (..., B, A); the gate carries none."""
    pull = policy.probs * reference.mass[..., None]
    return gate(reference.mass, policy.mass)[..., None] * policy.correct.add_to(pull, -reference.correct_probs)


def gate(reference_mass: Tensor, mass: Tensor) -> Tensor:
    """g_B (Eq. 19) in expectation, (..., 1), over the last axis of the contexts' masses (..., B); without gradient."""
    return torch.clamp_min(reference_mass.mean(-1, keepdim=True) - mass.mean(-1, keepdim=True), 0).detach()
