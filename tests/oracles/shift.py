"""The terms of the joint loss (Eq. 18) from their definitions: one prompt at a time, as loops, for autograd.

Log-probabilities are scalar tensors that carry a gradient; weights and advantages are Python floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tests.oracles import exact, sampled


def inverse_cdf(probs: Sequence[float], uniform: float) -> int:
    """The action whose share of the unit interval holds `uniform`."""
    total = 0.0
    for action, probability in enumerate(probs):
        total += probability
        if uniform < total:
            return action
    return len(probs) - 1


def clipped(log_ratio: Tensor, advantage: float, clip: float) -> Tensor:
    """Eq. 3 of one response of one token."""
    ratio = log_ratio.exp()
    return torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)


def grpo(log_probs: Tensor, behavior: Tensor, actions: Sequence[int], correct: Sequence[bool], clip: float) -> Tensor:
    """-J_GRPO of one prompt's group of one-token responses."""
    advantages = sampled.advantages([float(correct[action]) for action in actions], 1e-6, True)
    terms = [
        clipped(log_probs[action] - float(behavior[action]), advantage, clip)
        for action, advantage in zip(actions, advantages, strict=True)
    ]
    return -torch.stack(terms).mean()


def value(method: str, log_probs: Tensor, reference: Tensor, correct: Sequence[bool]) -> Any:
    """The exact regularizer of one prompt."""
    return exact.VALUES[method](list(log_probs.exp()), list(reference.exp()), correct, torch)


def surrogate(
    method: str,
    log_probs: Tensor,
    behavior: Tensor,
    reference: Tensor,
    cached: Sequence[int],
    fresh: Sequence[int],
    correct: Sequence[bool],
    epsilon_is: float,
) -> Tensor:
    """Eq. 17 of one prompt and its counterparts for the other regularizers."""
    now = [log_probs[action].item() for action in fresh]
    then = [behavior[action].item() for action in fresh]
    on_cached, on_fresh = sampled.surrogate_weights(
        method,
        [float(correct[action]) for action in cached],
        [float(correct[action]) for action in fresh],
        now,
        then,
        [float(reference[action]) for action in fresh],
        epsilon_is,
    )
    terms = [
        weight * log_probs[action]
        for weights, actions in ((on_cached, cached), (on_fresh, fresh))
        for weight, action in zip(weights, actions, strict=True)
    ]
    return torch.stack(terms).sum()


def floor(
    log_probs: Sequence[Tensor],
    references: Sequence[Tensor],
    corrects: Sequence[Sequence[bool]],
    groups: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]] | None,
) -> Tensor:
    """Eq. 20 over a batch of prompts with the gate of Eq. 19: on cached and fresh `groups`, or in expectation."""
    attractions, gap = [], 0.0
    for place, (current, reference, correct) in enumerate(zip(log_probs, references, corrects, strict=True)):
        shares = [float(exact.mass(policy.exp().tolist(), correct)) for policy in (reference, current)]
        weights = reference.exp().tolist()
        if groups is not None:
            cached, fresh = groups[0][place], groups[1][place]
            shares = [sum(correct[action] for action in group) / len(group) for group in (cached, fresh)]
            weights = [cached.count(action) / len(cached) for action in range(len(correct))]
        gap += (shares[0] - shares[1]) / len(log_probs)
        attractions += [weights[action] * current[action] for action in range(len(correct)) if correct[action]]
    return -max(gap, 0.0) * torch.stack(attractions).sum() / len(log_probs)
