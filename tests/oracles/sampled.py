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
