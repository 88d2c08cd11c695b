"""The terms of the joint loss (Eq. 18) from their definitions: one prompt at a time, as loops, for autograd.

Log-probabilities are scalar tensors that carry a gradient; weights and advantages are Python floats.
"""

from __future__ import annotations

import math
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
    ratios = sampled.clipped_ratios(now, then, epsilon_is)
    rewards = [float(correct[action]) for action in fresh]
    gamma = sampled.gamma(now, then, rewards, epsilon_is)
    log_ratios = [current - float(reference[action]) for current, action in zip(now, fresh, strict=True)]
    alpha = sampled.self_normalised([float(correct[action]) for action in cached])
    on_cached, on_fresh = [0.0] * len(cached), [0.0] * len(fresh)
    if method in ("cokl", "correct_forward_kl"):
        on_cached = [-weight for weight in alpha]
    if method in ("cokl", "cokl_without_term1"):
        on_fresh = gamma
    if method == "forward_kl":
        on_cached = [-1 / len(cached)] * len(cached)
    if method == "reverse_kl":
        on_fresh = sampled.score_function(log_ratios, ratios)
    if method == "entropy":
        on_fresh = sampled.score_function(now, ratios)
    if method == "jensen_shannon":
        costs = [0.5 * math.log(2 / (1 + math.exp(-log_ratio))) for log_ratio in log_ratios]
        on_fresh = sampled.score_function(costs, ratios)
    if method == "correct_reverse_kl" and sum(rewards) > 1:
        for j, weight in enumerate(gamma):
            others = [k for k in range(len(fresh)) if k != j]
            mean = sum(gamma[k] * log_ratios[k] for k in others) / max(sum(gamma[k] for k in others), 1e-12)
            on_fresh[j] = weight * (log_ratios[j] - mean)
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
