"""The batch-level correctness floor (Eqs. 19-20): a one-sided, gated pull on the total correctness.

It is not a regularizer of a single context, since its gate averages over the batch, so the registry does not have it.

Assumption beyond the paper: Eq. 20's `r_ij` and `y_ij` are the reference responses and their rewards, as in Eq. 12.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cokl.groups import ResponseGroups
from cokl.policy import Policy, expectation


def sampled_floor_weights(reference: ResponseGroups, rollout: ResponseGroups) -> Tensor:
    """Weights of L_floor (Eq. 20) on the reference responses, -g_B r / G, where g_B is Eq. 19.

    Args:
        reference: (N, G_ref), cached groups.
        rollout: (N, G), fresh groups of the same prompts.

    Returns:
        (N, G_ref), <= 0, of log-likelihoods in nats. The gate averages over all groups.

    Examples:
        >>> cached = ResponseGroups(torch.tensor([[-1.0, -2.0]]), torch.tensor([[1, 1]]))
        >>> sampled_floor_weights(cached, ResponseGroups(torch.tensor([[-1.0, -2.0]]), torch.tensor([[1, 0]])))
        tensor([[-0.2500, -0.2500]])
    """
    rewards = reference.rewards.to(reference.log_probs.dtype)
    gate = (rewards.mean() - rollout.rewards.to(rewards.dtype).mean()).clamp_min(0)
    return -gate * rewards / rewards.shape[-1]


def floor_value(policy: Policy, reference: Policy) -> Tensor:
    """Expectation of L_floor (Eq. 20): -g_B sum over correct y of pi_ref(y) log pi(y).

    Args:
        policy: contexts (..., B).
        reference: the same contexts and correct sets.

    Returns:
        (..., B), in nats, >= 0, for each context; only the gate averages over B.

    Examples:
        >>> correct = CorrectSet.from_mask(torch.tensor([[True, True, False]]))
        >>> policy, reference = Policy(torch.zeros(1, 3), correct), Policy(torch.tensor([[2.0, 1.0, 0.0]]), correct)
        >>> floor_value(policy, reference)
        tensor([0.2432])
    """
    return -gate(reference.mass, policy.mass) * expectation(reference.correct_probs, policy.correct_log_probs)


def floor_logit_gradient(policy: Policy, reference: Policy) -> Tensor:
    """Gradient of `floor_value` with respect to each context's own logits; the gate carries none.

    Args:
        policy: contexts (..., B) over A actions.
        reference: the same contexts and correct sets.

    Returns:
        (..., B, A), which sums to zero over actions.

    Examples:
        >>> correct = CorrectSet.from_mask(torch.tensor([[True, True, False]]))
        >>> policy, reference = Policy(torch.zeros(1, 3), correct), Policy(torch.tensor([[2.0, 1.0, 0.0]]), correct)
        >>> floor_logit_gradient(policy, reference)
        tensor([[-0.0881,  0.0143,  0.0738]])
    """
    pull = policy.probs * reference.mass[..., None]
    return gate(reference.mass, policy.mass)[..., None] * policy.correct.add_to(pull, -reference.correct_probs)


def gate(reference_mass: Tensor, mass: Tensor) -> Tensor:
    """g_B (Eq. 19) in expectation: how far the mean correctness is below the reference's; without gradient.

    Args:
        reference_mass: (..., B), the reference's Z of each context.
        mass: (..., B), the policy's.

    Returns:
        (..., 1), in [0, 1]: averaged over the last axis.

    Examples:
        >>> gate(torch.tensor([0.5, 0.75]), torch.tensor([0.25, 0.5]))
        tensor([0.2500])
    """
    return torch.clamp_min(reference_mass.mean(-1, keepdim=True) - mass.mean(-1, keepdim=True), 0).detach()
