"""Full reverse KL, D_KL(pi || pi_ref), the penalty of Theorem 2.

Logit gradient: pi * (log(pi / pi_ref) - D); where the reference lacks an action that the policy takes, D is inf and the
gradient its limit, +inf on such actions and -inf on the policy's others.
Sampled: the score-function form with cost log(pi / pi_ref), which is the k1 estimator in the reward with a
leave-one-out baseline.
Population optimum (Theorem 2): logit Z* = logit q + 1 / beta.
"""

from __future__ import annotations

from scipy.special import expit, logit
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights, required, score_function_weights
from cokl.policy import Policy, centred, expectation
from cokl.regularizers import register
from cokl.regularizers.base import FloatArray, Regularizer


@register
class ReverseKL(Regularizer):
    """KL from the full policy to the full reference. Range [0, inf]."""

    name = "reverse_kl"
    label = "Reverse KL"
    streams = ("rollout",)
    compares_with_reference = True

    def value(self, policy: Policy, reference: Policy) -> Tensor:
        return expectation(policy.probs, policy.log_probs - reference.log_probs)

    def logit_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        return centred(policy.probs, policy.log_probs - reference.log_probs)

    def surrogate_weights(
        self, reference: ResponseGroups | None, rollout: ResponseGroups | None, config: SurrogateConfig
    ) -> SurrogateWeights:
        rollout = required(rollout, "rollout")
        costs = rollout.reference_log_ratios()
        return SurrogateWeights(None, score_function_weights(rollout, costs, config.epsilon_is))

    def _optimal_mass(self, q: FloatArray, beta: FloatArray, correct_fraction: FloatArray | None) -> FloatArray:
        return expit(logit(q) + 1 / beta)
