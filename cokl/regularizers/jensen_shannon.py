"""Jensen-Shannon divergence, D = (KL(pi || m) + KL(pi_ref || m)) / 2 with m = (pi + pi_ref) / 2.

Logit gradient: pi * (log(pi / m) - KL(pi || m)) / 2; the dependence of m on pi cancels. Sampled: the score-function
form with cost log(pi / m) / 2 on rollouts.
Population optimum (beyond the paper): an f-divergence is smallest at the reference's conditionals, which leaves the
Bernoulli problem. Stationarity, log[z / (z + q)] - log[(1 - z) / (2 - z - q)] = 2 / beta, is with e = exp(-2 / beta)
the quadratic (1 - e) z^2 + (e - (1 - q)(1 - e)) z - q = 0. Its derivative diverges at z -> 1, so q < Z* < 1.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights, required, score_function_weights
from cokl.policy import Policy, centred, expectation
from cokl.regularizers import register
from cokl.regularizers.base import FloatArray, Regularizer, positive_root


@register
class JensenShannon(Regularizer):
    """Jensen-Shannon divergence of the full policies. Range [0, log 2]; rounding may end above."""

    name = "jensen_shannon"
    label = "Jensen-Shannon"
    streams = ("rollout",)
    compares_with_reference = True

    def value(self, policy: Policy, reference: Policy) -> Tensor:
        mixture = _log_mean(policy.log_probs, reference.log_probs)
        from_policy = expectation(policy.probs, policy.log_probs - mixture)
        value = 0.5 * (from_policy + expectation(reference.probs, reference.log_probs - mixture))
        return value + (value.clamp_min(0) - value).detach()  # a rounded value below 0 keeps its gradient

    def logit_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        mixture = _log_mean(policy.log_probs, reference.log_probs)
        return 0.5 * centred(policy.probs, policy.log_probs - mixture)

    def surrogate_weights(
        self, reference: ResponseGroups | None, rollout: ResponseGroups | None, config: SurrogateConfig
    ) -> SurrogateWeights:
        rollout = required(rollout, "rollout")
        log_ratios = rollout.reference_log_ratios()
        costs = 0.5 * -_log_mean(torch.zeros_like(log_ratios), -log_ratios)
        return SurrogateWeights(None, score_function_weights(rollout, costs, config.epsilon_is))

    def _optimal_mass(self, q: FloatArray, beta: FloatArray, correct_fraction: FloatArray | None) -> FloatArray:
        decay = np.exp(-2 / beta)
        quadratic = -np.expm1(-2 / beta)
        return positive_root(quadratic, decay - (1 - q) * quadratic, q)


def _log_mean(log_a: Tensor, log_b: Tensor) -> Tensor:
    """log((a + b) / 2) elementwise, -inf where both are 0, and there without a gradient, which would be NaN."""
    neither = (log_a == -torch.inf) & (log_b == -torch.inf)
    log_sum = torch.logaddexp(log_a.masked_fill(neither, 0), log_b.masked_fill(neither, 0))
    return log_sum.masked_fill(neither, -torch.inf) - math.log(2)
