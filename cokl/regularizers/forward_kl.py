"""Full forward KL, D_KL(pi_ref || pi), the penalty of Theorem 2.

Logit gradient: pi - pi_ref. Sampled: -1/G on every reference response, the cross-entropy whose gradient it shares.
Population optimum (Theorem 2): Z* = (1 - beta + sqrt((beta - 1)^2 + 4 beta q)) / 2, written without cancellation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights, required
from cokl.policy import Policy, expectation
from cokl.regularizers import register
from cokl.regularizers.base import FloatArray, Regularizer, positive_root


@register
class ForwardKL(Regularizer):
    """KL from the full reference to the full policy. Range [0, inf]."""

    name = "forward_kl"
    label = "Forward KL"
    streams = ("reference",)

    def value(self, policy: Policy, reference: Policy) -> Tensor:
        return expectation(reference.probs, reference.log_probs - policy.log_probs)

    def logit_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        return policy.probs - reference.probs

    def surrogate_weights(
        self, reference: ResponseGroups | None, rollout: ResponseGroups | None, config: SurrogateConfig
    ) -> SurrogateWeights:
        reference = required(reference, "reference")
        size = reference.log_probs.shape[-1]
        return SurrogateWeights(torch.full_like(reference.log_probs.detach(), -1 / size), None)

    def _optimal_mass(self, q: FloatArray, beta: FloatArray, correct_fraction: FloatArray | None) -> FloatArray:
        return positive_root(1.0, beta - 1, beta * q)
