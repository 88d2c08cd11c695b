"""Correct-only reverse KL, the mirror image of replay: D_KL(pi+ || pi_ref) = D_KL(pi+ || pi_ref+) - log q.

Logit gradient: pi+ * (log(pi+ / pi_ref+) - D_KL(pi+ || pi_ref+)). Sampled: delta (gamma) times the centred log-ratio,
where centring on the other correct responses removes the unknown log(Z / q); a group with a single correct response
carries no information about pi+ and gets zero weights. Population optimum (beyond the paper): Z* = 1.

Assumption beyond the paper: it names correct-only reverse KL without a formula. Here the sampled side is conditioned,
as in the paper's D_KL(pi_ref+ || pi).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights, required, rollout_weights
from cokl.policy import Policy, centred, expectation
from cokl.regularizers import register
from cokl.regularizers.base import FloatArray, Regularizer


@register
class CorrectReverseKL(Regularizer):
    """KL from the correctness-conditioned policy to the full reference. Range [-log q, inf]."""

    name = "correct_reverse_kl"
    label = "Correct-only reverse KL"
    conditional = True
    streams = ("rollout",)
    compares_with_reference = True

    def value(self, policy: Policy, reference: Policy) -> Tensor:
        return expectation(policy.conditional_probs, policy.conditional_log_probs - reference.correct_log_probs)

    def logit_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        log_ratios = policy.correct_log_probs - reference.correct_log_probs
        dense = torch.zeros_like(policy.logits)
        return policy.correct.add_to(dense, centred(policy.conditional_probs, log_ratios))

    def surrogate_weights(
        self, reference: ResponseGroups | None, rollout: ResponseGroups | None, config: SurrogateConfig
    ) -> SurrogateWeights:
        rollout = required(rollout, "rollout")
        log_ratios = rollout.reference_log_ratios()
        gamma = rollout_weights(rollout, config.epsilon_is)
        others = gamma.sum(-1, keepdim=True) - gamma
        others_mean = ((gamma * log_ratios).sum(-1, keepdim=True) - gamma * log_ratios) / others.clamp_min(1e-12)
        alone = rollout.rewards.sum(-1, keepdim=True) < 2
        return SurrogateWeights(None, (gamma * (log_ratios - others_mean)).masked_fill(alone, 0))

    def _optimal_mass(self, q: FloatArray, beta: FloatArray, correct_fraction: FloatArray | None) -> FloatArray:
        return np.ones_like(q)
