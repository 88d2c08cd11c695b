"""CoKL without term 1: only the normalisation correction log Z of Eq. 9 (ablation "w/o term1").

Logit gradient: pi+ - pi. Sampled: gamma on rollouts. It pushes the correctness mass down and preserves nothing.
Population optimum (beyond the paper): Z - beta log Z grows without bound as Z -> 0, so the supremum is at Z* = 0 for
every beta > 0. For beta < 1 there is besides a local maximum at Z = 1, with the valley between them at Z = beta.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights, required, rollout_weights
from cokl.policy import Policy
from cokl.regularizers import register
from cokl.regularizers.base import FloatArray, Regularizer


@register
class CoKLWithoutTerm1(Regularizer):
    """log Z of the policy. Range [-inf, 0]; 0 by convention for a context without a correct action."""

    name = "cokl_without_term1"
    label = "CoKL w/o term 1"
    conditional = True
    streams = ("rollout",)

    def value(self, policy: Policy, reference: Policy) -> Tensor:
        return policy.log_mass.masked_fill(policy.correct.sizes == 0, 0)

    def logit_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        return policy.log_mass_logit_gradient()

    def surrogate_weights(
        self, reference: ResponseGroups | None, rollout: ResponseGroups | None, config: SurrogateConfig
    ) -> SurrogateWeights:
        rollout = required(rollout, "rollout")
        return SurrogateWeights(None, rollout_weights(rollout, config.epsilon_is))

    def _optimal_mass(self, q: FloatArray, beta: FloatArray, correct_fraction: FloatArray | None) -> FloatArray:
        return np.zeros_like(q)
