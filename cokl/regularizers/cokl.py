"""CoKL, D_KL(pi_ref+ || pi+) (Eq. 8): forward KL between the correctness-conditioned policies.

Up to a constant it is -E_{ref+}[log pi] + log Z (Eq. 9): term 1 anchors the reference-correct actions, term 2 takes
the pressure on the correctness mass out again. Logit gradient (Eq. 10): pi+ - pi_ref+, zero outside the correct set.
Sampled (Eqs. 12 and 17): -alpha on reference responses, gamma (delta when on-policy) on rollouts.
Population optimum (Theorem 1): Z* = 1 with pi+ = pi_ref+, for every q and beta.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cokl.groups import (
    ResponseGroups,
    SurrogateConfig,
    SurrogateWeights,
    reference_weights,
    required,
    rollout_weights,
)
from cokl.policy import Policy, expectation
from cokl.regularizers import register
from cokl.regularizers.base import FloatArray, Regularizer


@register
class CoKL(Regularizer):
    """KL from the correctness-conditioned reference to the correctness-conditioned policy. Range [0, inf]."""

    name = "cokl"
    label = "CoKL"
    conditional = True
    streams = ("reference", "rollout")

    def value(self, policy: Policy, reference: Policy) -> Tensor:
        return expectation(reference.conditional_probs, reference.conditional_log_probs - policy.conditional_log_probs)

    def logit_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        dense = torch.zeros_like(policy.logits)
        anchored = policy.conditional_probs * reference.solvable
        return policy.correct.add_to(dense, anchored - reference.conditional_probs)

    def surrogate_weights(
        self, reference: ResponseGroups | None, rollout: ResponseGroups | None, config: SurrogateConfig
    ) -> SurrogateWeights:
        reference = required(reference, "reference")
        rollout = required(rollout, "rollout")
        return SurrogateWeights(-reference_weights(reference), rollout_weights(rollout, config.epsilon_is))

    def _optimal_mass(self, q: FloatArray, beta: FloatArray, correct_fraction: FloatArray | None) -> FloatArray:
        return np.ones_like(q)
