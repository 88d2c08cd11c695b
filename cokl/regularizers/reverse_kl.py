"""Full reverse KL, D_KL(pi || pi_ref), the penalty of Theorem 2.

Logit gradient: pi * (log(pi / pi_ref) - D); where the reference lacks an action that the policy takes, D is inf and the
gradient its limit, +inf on such actions and -inf on the policy's others.
Sampled: the score-function form with cost log(pi / pi_ref), which is the k1 estimator in the reward with a
leave-one-out baseline.
Population optimum (Theorem 2): logit Z* = logit q + 1 / beta.

Assumption beyond the paper: the sampled reverse KL is k1 in the reward, with a leave-one-out baseline: its expected
on-policy gradient is the reverse KL's. Used as a loss and differentiated through the policy's log-likelihoods, k1 has
the expected gradient zero instead, and k3, pi_ref / pi - 1 - log(pi_ref / pi), that of the *forward* KL.
"""

from __future__ import annotations

import torch
from scipy.special import expit, logit
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights, required, score_function_weights
from cokl.policy import Policy, centred, expectation
from cokl.regularizers import register
from cokl.regularizers.base import FloatArray, Regularizer
from cokl.regularizers.log_linear import LogLinear


@register
class ReverseKL(Regularizer):
    """KL from the full policy to the full reference. Range [0, inf]."""

    name = "reverse_kl"
    label = "Reverse KL"
    streams = ("rollout",)
    compares_with_reference = True

    def value(self, policy: Policy, reference: Policy) -> Tensor:
        return expectation(policy.probs, policy.log_probs - reference.log_probs)

    def log_linear(self) -> LogLinear:
        return LogLinear("policy", policy=1, reference=-1)

    def logit_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        gradient = centred(policy.probs, policy.log_probs - reference.log_probs)
        # Where the policy has mass that the reference lacks, D is infinite: its gradient's limit, instead of inf - inf.
        outside = (policy.probs > 0) & reference.log_probs.isneginf()
        limit = torch.where(outside, torch.inf, -torch.inf).to(gradient).masked_fill(policy.probs == 0, 0)
        return torch.where(outside.any(-1, keepdim=True), limit, gradient)

    def surrogate_weights(
        self, reference: ResponseGroups | None, rollout: ResponseGroups | None, config: SurrogateConfig
    ) -> SurrogateWeights:
        rollout = required(rollout, "rollout")
        return SurrogateWeights(
            None, score_function_weights(rollout, rollout.reference_log_ratios(), config.epsilon_is)
        )

    def _optimal_mass(self, q: FloatArray, beta: FloatArray, correct_fraction: FloatArray | None) -> FloatArray:
        return expit(logit(q) + 1 / beta)
