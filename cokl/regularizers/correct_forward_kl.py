"""Replay, D_KL(pi_ref+ || pi): likelihood of the reference's correct actions. The paper's correct-only forward KL.

It equals CoKL - log Z (below Eq. 9), so it also rewards correctness mass. Logit gradient: pi - pi_ref+.
Sampled: -alpha on reference responses.
Population optimum (beyond the paper): both parts are best at pi+ = pi_ref+ and Z* = 1, so there is no gap.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights, reference_weights, required
from cokl.policy import Policy, expectation
from cokl.regularizers import register
from cokl.regularizers.base import FloatArray, Regularizer


@register
class CorrectForwardKL(Regularizer):
    """KL from the correctness-conditioned reference to the full policy. Range [0, inf]."""

    name = "correct_forward_kl"
    label = "Replay"
    conditional = True
    streams = ("reference",)

    def value(self, policy: Policy, reference: Policy) -> Tensor:
        return expectation(reference.conditional_probs, reference.conditional_log_probs - policy.correct_log_probs)

    def logit_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        return policy.correct.add_to(policy.probs * reference.solvable, -reference.conditional_probs)

    def surrogate_weights(
        self, reference: ResponseGroups | None, rollout: ResponseGroups | None, config: SurrogateConfig
    ) -> SurrogateWeights:
        reference = required(reference, "reference")
        return SurrogateWeights(-reference_weights(reference), None)

    def _optimal_mass(self, q: FloatArray, beta: FloatArray, correct_fraction: FloatArray | None) -> FloatArray:
        return np.ones_like(q)
