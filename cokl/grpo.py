"""GRPO: group-relative advantages and the clipped token-level surrogate (Eqs. 1-4).

Shapes: `N` prompt groups, `G` responses per group, `T` tokens per response, padded.

Assumption beyond the paper: VeRL's values of what the paper leaves open. The advantage's epsilon is 1e-6, without
effect unless a group's rewards are nearly equal; its standard deviation divides by G - 1; the clipping range is 0.2,
without effect while every ratio is 1. But no dual clip: a negative advantage's surrogate has no upper bound, as in
Eq. 3; VeRL bounds it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cokl.groups import refuse_above_zero

ADVANTAGE_EPSILON = 1e-6
"""The small constant epsilon in the advantage's denominator (Eq. 1)."""
CLIP = 0.2
"""The clipping range delta of the token ratio (Eq. 3)."""


def group_advantages(rewards: Tensor) -> Tensor:
    """Rewards normalised within their group (Eq. 1), without gradient.

    A group of equal rewards, and a group of one response, has zero advantages.

    Args:
        rewards: (N, G) floating, in any unit.

    Returns:
        (N, G), in standard deviations of a group's rewards; the mean and the deviation are over G, in float32 at least.

    Raises:
        ValueError: rewards that are not floating-point, or not finite after squaring: one would spoil its whole group.

    Examples:
        >>> group_advantages(torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
        tensor([[ 1.1547, -0.5773, -0.5773],
                [ 0.0000,  0.0000,  0.0000]])
    """
    if not rewards.is_floating_point():
        raise ValueError(f"rewards: expected a floating-point tensor, got {rewards.dtype}; convert it with .float()")
    wide = rewards.to(torch.promote_types(rewards.dtype, torch.float32))
    relative = wide - wide[..., :1]  # equal rewards become exact zeros, which a rounded mean would not give
    centred = relative - relative.mean(-1, keepdim=True)
    degrees = max(rewards.shape[-1] - 1, 1)
    std = (centred.square().sum(-1, keepdim=True) / degrees).sqrt()
    if not bool(std.isfinite().all()):
        raise ValueError("rewards: expected finite numbers whose squares are finite, got NaN, an infinity or too large")
    return (centred / (std + ADVANTAGE_EPSILON)).detach().to(rewards.dtype)


def grpo_loss(
    log_probs: Tensor,
    behavior_log_probs: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
) -> Tensor:
    """-J_GRPO (Eqs. 2-4): the clipped surrogate.

    The minimum of Eq. 3 clips from above for advantages >= 0 and from below for others, so it is taken in log space,
    before a ratio can overflow; only a negative advantage, for which Eq. 3 has no upper bound, can give +inf.

    Args:
        log_probs: (N, G, T), in nats per token under the current policy; carries the gradient.
        behavior_log_probs: (N, G, T), under the policy that sampled; its gradient is cut.
        advantages: (N, G), shared by all tokens of a response.
        response_mask: (N, G, T) bool, True on response tokens.

    Returns:
        A scalar: the mean over a response's tokens, then over responses and groups.

    Raises:
        ValueError: a response without tokens, whose mean is undefined; log-likelihoods above 0, as `ResponseGroups`
            refuses them.

    Examples:
        >>> log_probs, advantages = torch.tensor([[[-1.0, -2.0], [-1.0, -1.0]]]), torch.tensor([[1.0, -3.0]])
        >>> grpo_loss(log_probs, log_probs, advantages, torch.ones(1, 2, 2, dtype=torch.bool))
        tensor(1.)
    """
    lengths = response_mask.sum(-1)
    if bool((lengths == 0).any()):
        raise ValueError("response_mask: every response needs at least one token")
    for name, given in (("log_probs", log_probs), ("behavior_log_probs", behavior_log_probs)):
        refuse_above_zero(name, torch.where(response_mask, given.detach(), 0))
    log_ratios = torch.where(response_mask, log_probs - behavior_log_probs.detach(), 0)
    token_advantages = advantages[..., None]
    from_above = log_ratios.clamp(max=math.log1p(CLIP))
    from_below = log_ratios.clamp(min=math.log1p(-CLIP))
    per_token = torch.where(token_advantages >= 0, from_above, from_below).exp() * token_advantages
    return -((per_token * response_mask).sum(-1) / lengths).mean()
