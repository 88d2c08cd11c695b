"""Entropy regularization: D(pi) = -H(pi) = sum_y pi(y) log pi(y), a bonus for spreading over all actions.

Logit gradient: pi * (log pi - sum pi log pi). Sampled: the score-function form with cost log pi.
Population optimum (beyond the paper): the Gibbs policy pi ~ exp(r / beta) is uniform within the correct and within the
incorrect set, so logit Z* = logit(correct_fraction) + 1 / beta; the reference does not enter.
"""

from __future__ import annotations

from scipy.special import expit, logit
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights, required, score_function_weights
from cokl.policy import Policy, centred, expectation
from cokl.regularizers import register
from cokl.regularizers.base import FloatArray, Regularizer
from cokl.support.errors import InputError


@register
class Entropy(Regularizer):
    """Negative entropy of the full policy; does not depend on the reference. Range [-log A, 0]."""

    name = "entropy"
    label = "Entropy"
    streams = ("rollout",)

    def value(self, policy: Policy, reference: Policy) -> Tensor:
        return expectation(policy.probs, policy.log_probs)

    def logit_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        return centred(policy.probs, policy.log_probs)

    def surrogate_weights(
        self, reference: ResponseGroups | None, rollout: ResponseGroups | None, config: SurrogateConfig
    ) -> SurrogateWeights:
        rollout = required(rollout, "rollout")
        return SurrogateWeights(None, score_function_weights(rollout, rollout.log_probs.detach(), config.epsilon_is))

    def _optimal_mass(self, q: FloatArray, beta: FloatArray, correct_fraction: FloatArray | None) -> FloatArray:
        if correct_fraction is None:
            raise InputError("correct_fraction: the entropy optimum needs correct actions over all actions, in (0, 1)")
        return expit(logit(correct_fraction) + 1 / beta) + 0 * q
