"""From log-probabilities and rewards to a regularizer's loss: what a training loop of your own calls.

`import cokl` gives these functions: `cokl.loss`, `cokl.weights`, and GRPO's `cokl.group_advantages`. A loop that
computes all responses in one pass takes `loss`. One that accumulates gradients takes `weights` once over whole groups,
and adds `(weights * log_probs).sum()` of each micro-batch: that is exact under any split, since the weights carry no
gradient.

Shapes: `N` prompts, `G` fresh responses to each, drawn from the current policy (or from a behaviour policy whose
log-likelihoods are given), and `C` cached ones, drawn from the reference before training.

Log-likelihoods are of the distribution that was sampled from. Whoever samples at a temperature other than 1 divides the
logits by it before the log-softmax, in the loss too.

Assumption beyond the paper: none; the choices of `cokl.groups` apply.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cokl import methods
from cokl.groups import ResponseGroups, SurrogateConfig, row_surrogate_loss
from cokl.support.errors import InputError


class RowWeights(NamedTuple):
    """Signed weights on log-likelihoods.

    Attributes:
        reference: (N, C), on cached responses.
        rollout: (N, G), on fresh ones.
    """

    reference: Tensor
    rollout: Tensor


def weights(
    log_probs: Tensor | None,
    rewards: Tensor | None,
    cached_rewards: Tensor | None = None,
    *,
    method: str = "cokl",
    beta: float,
    behavior_log_probs: Tensor | None = None,
    reference_log_probs: Tensor | None = None,
    lengths: Tensor | None = None,
    cached_lengths: Tensor | None = None,
    epsilon_is: float = SurrogateConfig.epsilon_is,
) -> RowWeights:
    """The weight of each response, coefficient and mean over prompts included (Eqs. 11, 12, 16 and 17).

    Minimising `(weights.rollout * log_probs).sum() + (weights.reference * cached_log_probs).sum()` minimises
    beta times the regularizer. A prompt without a right cached response, and one without a right fresh one, gives its
    term no weight (below Eq. 11).

    Args:
        log_probs: (N, G), sequence log-likelihoods of the fresh responses in nats, under the policy that is updated
            now. No gradient is used. None, as `rewards`, for a method that weights cached responses alone.
        rewards: (N, G), the verifier's verdicts of the fresh responses, 0 or 1; threshold other scores first.
        cached_rewards: (N, C), those of the cached ones; None for a method that uses none.
        method: a name that `cokl.methods.get` takes, such as "cokl", "correct_forward_kl" or "none".
        beta: the coefficient, >= 0.
        behavior_log_probs: (N, G), under the policy that sampled, if it has been updated since; None on-policy.
        reference_log_probs: (N, G), under the reference; needed by methods that compare with it.
        lengths: (N, G), tokens of each fresh response, to take means over tokens instead of Eq. 13's sums.
        cached_lengths: (N, C), likewise.
        epsilon_is: the clipping range of the importance ratio, in (0, 1) (Eq. 15).

    Returns:
        `reference`, (N, C), and `rollout`, (N, G); zeros for a stream that the method does not weight. A stream that is
        not given has no columns.

    Raises:
        InputError: an unknown method, a missing argument, a coefficient below 0, or one alone of log_probs and
            rewards, or of the two lengths.
        ValueError: shapes that differ, verdicts other than 0 and 1, or log-likelihoods that are not finite.

    Examples:
        >>> log_probs, verdicts = torch.tensor([[-1.0, -2.0, -4.0]]), torch.tensor([[1, 0, 1]])
        >>> found = weights(log_probs, verdicts, cached_rewards=torch.tensor([[1, 1, 0, 0]]), beta=1.0)
        >>> found.reference, found.rollout
        (tensor([[-0.5000, -0.5000, -0.0000, -0.0000]]), tensor([[0.5000, 0.0000, 0.5000]]))
    """
    chosen = methods.get(method)
    given = {"log_probs": log_probs, "rewards": rewards, "cached_rewards": cached_rewards}
    for name, value in given.items():
        if value is not None and not isinstance(value, Tensor):
            raise InputError(f"{name}: expected a tensor, got {type(value).__name__}; torch.tensor makes one of a list")
    try:
        finite = 0 <= beta < float("inf")
    except TypeError:  # a text
        finite = False
    if not finite:
        raise InputError(f"beta: expected a finite coefficient >= 0, got {beta!r}")
    streams = chosen.streams()
    if "reference" in streams and cached_rewards is None:
        raise InputError(f"cached_rewards: {method} weights cached responses; give the verdicts of the reference's own")
    compared = reference_log_probs if chosen.compares_with_reference else None
    if chosen.compares_with_reference and compared is None:
        raise InputError(
            f"reference_log_probs: {method} compares with the reference; give the fresh responses' under it"
        )
    log_probs, rewards = _fresh(log_probs, rewards, cached_rewards)
    fresh = ResponseGroups(log_probs.detach(), rewards, behavior_log_probs, compared)
    if "rollout" in streams and not rewards.numel():
        raise InputError(f"log_probs: {method} needs fresh responses; give their log-likelihoods and verdicts")
    cached = None
    if cached_rewards is not None:
        if len(cached_rewards) != len(rewards):
            raise ValueError(
                f"cached_rewards: expected one line for each of {len(rewards)} prompts, got {len(cached_rewards)}"
            )
        cached = ResponseGroups(log_probs.new_zeros(cached_rewards.shape), cached_rewards)  # weighted by verdicts alone
    lacking = "reference" if cached_lengths is None else "rollout"
    if (lengths is None) != (cached_lengths is None) and lacking in streams:
        raise InputError("lengths and cached_lengths: expected both or neither; a mean beside a sum changes the method")
    reference, rollout = chosen.weights(cached, fresh, beta, SurrogateConfig(epsilon_is))
    return RowWeights(
        _mean_over_prompts(reference, cached_rewards, log_probs, cached_lengths, "cached_lengths"),
        _mean_over_prompts(rollout, rewards, log_probs, lengths, "lengths"),
    )


def loss(
    log_probs: Tensor | None,
    rewards: Tensor | None,
    cached_log_probs: Tensor | None = None,
    cached_rewards: Tensor | None = None,
    *,
    method: str = "cokl",
    beta: float,
    behavior_log_probs: Tensor | None = None,
    reference_log_probs: Tensor | None = None,
    lengths: Tensor | None = None,
    cached_lengths: Tensor | None = None,
    epsilon_is: float = SurrogateConfig.epsilon_is,
) -> Tensor:
    """beta times the sampled regularizer, to add to the RL loss (Eqs. 12, 17 and 18).

    Its gradient, not its value, estimates the regularizer's. One call per optimizer step, over whole groups; with
    gradient accumulation over parts of the prompts, scale each part's by its share of the prompts.

    Args:
        log_probs: (N, G), sequence log-likelihoods of the fresh responses in nats; carries the gradient. None, as
            `rewards`, for a method that weights cached responses alone, such as replay.
        rewards: (N, G), their verdicts, 0 or 1.
        cached_log_probs: (N, C), of the cached responses under the current policy; carries the gradient.
        cached_rewards: (N, C), their verdicts.
        method: as in `weights`.
        beta: likewise.
        behavior_log_probs: likewise.
        reference_log_probs: likewise.
        lengths: likewise.
        cached_lengths: likewise.
        epsilon_is: likewise.

    Returns:
        A scalar in nats: weighted log-likelihoods summed over responses, averaged over prompts.

    Raises:
        InputError: as `weights` does; or cached verdicts without their log-likelihoods.
        ValueError: likewise.

    Examples:
        >>> log_probs = torch.tensor([[-1.0, -2.0, -4.0]], requires_grad=True)
        >>> cached = torch.tensor([[-3.0, -2.0]], requires_grad=True)
        >>> loss(log_probs, torch.tensor([[1, 0, 1]]), cached, torch.tensor([[1, 0]]), beta=0.5).backward()
        >>> log_probs.grad, cached.grad
        (tensor([[0.2500, 0.0000, 0.2500]]), tensor([[-0.5000, -0.0000]]))
    """
    log_probs, rewards = _fresh(log_probs, rewards, cached_log_probs)
    reference, rollout = weights(
        log_probs,
        rewards,
        cached_rewards,
        method=method,
        beta=beta,
        behavior_log_probs=behavior_log_probs,
        reference_log_probs=reference_log_probs,
        lengths=lengths,
        cached_lengths=cached_lengths,
        epsilon_is=epsilon_is,
    )
    total = row_surrogate_loss(rollout, log_probs)
    if reference.numel():
        if cached_log_probs is None or cached_log_probs.shape != reference.shape:
            raise InputError(f"cached_log_probs: expected log-likelihoods of shape {tuple(reference.shape)}")
        ResponseGroups(cached_log_probs.detach(), torch.zeros_like(reference))  # refused where they are none
        total = total + row_surrogate_loss(reference, cached_log_probs)
    return total


def _fresh(log_probs: Tensor | None, rewards: Tensor | None, cached: Tensor | None) -> tuple[Tensor, Tensor]:
    """Log-likelihoods and verdicts of the fresh responses, (N, 0) each where `cached`, (N, C), are given alone."""
    if log_probs is None and rewards is None and cached is not None:
        dtype = cached.dtype if cached.is_floating_point() else None
        none = torch.zeros((len(cached), 0), dtype=dtype, device=cached.device)
        return none, none
    if log_probs is None or rewards is None:
        raise InputError(
            "log_probs and rewards: expected both, or neither where a method weights cached responses alone"
        )
    return log_probs, rewards


def _mean_over_prompts(
    weights: Tensor | None, rewards: Tensor | None, log_probs: Tensor, lengths: Tensor | None, name: str
) -> Tensor:
    """Weights over the number of prompts and, if given, each response's length; zeros for a stream without weights."""
    if weights is None:
        return log_probs.new_zeros((len(log_probs), 0) if rewards is None else rewards.shape)
    if lengths is not None and (lengths.shape != weights.shape or not bool((lengths > 0).all())):
        raise ValueError(f"{name}: expected lengths of at least 1, in shape {tuple(weights.shape)}, got {lengths}")
    return weights / len(weights) if lengths is None else weights / len(weights) / lengths
