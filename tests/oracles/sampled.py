"""The paper's definitions over groups of sampled responses, as loops over one group's Python floats."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

Floats = Sequence[float]


def self_normalised(weights: Floats) -> list[float]:
    """Weights over their sum, zeros where the sum is zero: alpha and delta (Eq. 11) for rewards."""
    total = sum(weights)
    return [weight / total if total > 0 else 0.0 for weight in weights]


def clipped_ratios(log_probs: Floats, behavior_log_probs: Floats, epsilon_is: float) -> list[float]:
    """rho~ (Eqs. 14-15)."""
    ratios = []
    for current, behavior in zip(log_probs, behavior_log_probs, strict=True):
        log_ratio = current - behavior
        ratios.append(math.exp(min(max(log_ratio, math.log(1 - epsilon_is)), math.log(1 + epsilon_is))))
    return ratios


def gamma(log_probs: Floats, behavior_log_probs: Floats, rewards: Floats, epsilon_is: float) -> list[float]:
    """Self-normalised clipped importance weights of the correct responses (Eq. 16)."""
    ratios = clipped_ratios(log_probs, behavior_log_probs, epsilon_is)
    return self_normalised([ratio * reward for ratio, reward in zip(ratios, rewards, strict=True)])


def score_function(costs: Floats, ratios: Floats) -> list[float]:
    """Weights of the score-function gradient with the mean cost of the others as each response's baseline."""
    weights = []
    for j, cost in enumerate(costs):
        others = [other for k, other in enumerate(costs) if k != j]
        baseline = sum(others) / len(others) if others else 0.0
        weights.append(ratios[j] * (cost - baseline) / len(costs))
    return weights


def surrogate_weights(
    method: str,
    cached: Floats,
    fresh: Floats,
    now: Floats,
    before: Floats,
    of_start: Floats,
    epsilon_is: float,
) -> tuple[list[float], list[float]]:
    """Weights on one prompt's cached and fresh log-likelihoods: Eqs. 12 and 17, and the other regularizers'.

    cached, fresh: verdicts. now, before, of_start: the fresh responses' log-likelihoods under the policy, under the one
    that sampled them and under the reference.
    """
    on_cached, on_fresh = [0.0] * len(cached), [0.0] * len(fresh)
    ratios, shares = clipped_ratios(now, before, epsilon_is), gamma(now, before, fresh, epsilon_is)
    log_ratios = [current - start for current, start in zip(now, of_start, strict=True)]
    if method in ("cokl", "correct_forward_kl"):
        on_cached = [-weight for weight in self_normalised(cached)]
    if method in ("cokl", "cokl_without_term1"):
        on_fresh = shares
    if method == "forward_kl":
        on_cached = [-1 / len(cached)] * len(cached)
    if method == "reverse_kl":
        on_fresh = score_function(log_ratios, ratios)
    if method == "entropy":
        on_fresh = score_function(now, ratios)
    if method == "jensen_shannon":
        on_fresh = score_function([0.5 * math.log(2 / (1 + math.exp(-ratio))) for ratio in log_ratios], ratios)
    if method == "correct_reverse_kl":
        for one, share in enumerate(shares):
            others = [place for place in range(len(fresh)) if place != one and shares[place]]
            if share and others:
                mean = sum(shares[k] * log_ratios[k] for k in others) / sum(shares[k] for k in others)
                on_fresh[one] = share * (log_ratios[one] - mean)
    return on_cached, on_fresh


def opened(cached: Sequence[Floats], fresh: Sequence[Floats]) -> float:
    """The gate of Eq. 19: how far the fresh responses' correctness is below the cached ones', over a step's prompts."""
    before, now = (statistics.mean(verdict for group in groups for verdict in group) for groups in (cached, fresh))
    return max(before - now, 0.0)


def advantages(rewards: Floats, epsilon: float, unbiased_std: bool) -> list[float]:
    """Group-normalised advantages (Eq. 1)."""
    size = len(rewards)
    mean = statistics.mean(rewards)  # exact, so that equal rewards have advantages of zero
    variance = sum((reward - mean) ** 2 for reward in rewards) / max(size - 1 if unbiased_std else size, 1)
    return [(reward - mean) / (math.sqrt(variance) + epsilon) for reward in rewards]


def grpo_objective(
    log_probs: Sequence[Floats], behavior_log_probs: Sequence[Floats], group_advantages: Floats, clip: float
) -> float:
    """One group's term of J_GRPO (Eqs. 2-4), from the unpadded token log-probabilities of each response."""
    objective = 0.0
    for tokens, behavior_tokens, advantage in zip(log_probs, behavior_log_probs, group_advantages, strict=True):
        response = 0.0
        for current, behavior in zip(tokens, behavior_tokens, strict=True):
            ratio = math.exp(current - behavior)
            clipped = min(max(ratio, 1 - clip), 1 + clip)
            response += min(ratio * advantage, clipped * advantage)
        objective += response / len(tokens)
    return objective / len(log_probs)
