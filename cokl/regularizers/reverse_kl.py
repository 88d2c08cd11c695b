"""Full reverse KL, D_KL(pi || pi_ref), the penalty of Theorem 2.

Logit gradient: pi * (log(pi / pi_ref) - D); where the reference lacks an action that the policy takes, D is inf and the
gradient its limit, +inf on such actions and -inf on the policy's others.
Sampled: the score-function form with cost log(pi / pi_ref), which is the k1 estimator in the reward with a
leave-one-out baseline.
Population optimum (Theorem 2): logit Z* = logit q + 1 / beta.

Used as a loss and differentiated through the policy's log-likelihoods, k1 has the expected gradient zero instead, and
k3, pi_ref / pi - 1 - log(pi_ref / pi), that of the *forward* KL. VeRL's `kl_loss_type` "kl" is k1, whose gradient is
the same for tokens and sequences. Its "low_var_kl" is k3 of each *token's* ratio, cut off at 10 nats. Ours is k3 of the
sequence's ratio, cut off there too, since a response has one weight: the same for responses of one token alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from scipy.special import expit, logit
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights, required, score_function_weights
from cokl.policy import Policy, centred, expectation
from cokl.regularizers import register
from cokl.regularizers.base import FloatArray, Regularizer
from cokl.support.assumptions import assumption
from cokl.support.errors import InputError

_Estimator = Literal["reward", "k1", "sequence_k3"]
_MOST_K3 = 10.0


@register
@dataclass(frozen=True)
class ReverseKL(Regularizer):
    """KL from the full policy to the full reference. Range [0, inf]. Raises InputError for another estimator."""

    name = "reverse_kl"
    label = "Reverse KL"
    streams = ("rollout",)
    compares_with_reference = True

    estimator: _Estimator = assumption(
        "reward",
        "only 'reward' has the reverse KL's expected gradient; k1's is zero, that of 'sequence_k3' the forward KL's",
    )
    """Estimator of the reverse KL on samples: k1 in the reward with a leave-one-out baseline, k1 as a loss, or k3 of
    the whole response's ratio as a loss."""

    def __post_init__(self) -> None:
        if self.estimator not in get_args(_Estimator):
            known = ", ".join(get_args(_Estimator))
            raise InputError(f"reverse_kl.estimator: expected one of {known}, got {self.estimator!r}")

    def value(self, policy: Policy, reference: Policy) -> Tensor:
        return expectation(policy.probs, policy.log_probs - reference.log_probs)

    def logit_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        return centred(policy.probs, policy.log_probs - reference.log_probs)

    def surrogate_weights(
        self, reference: ResponseGroups | None, rollout: ResponseGroups | None, config: SurrogateConfig
    ) -> SurrogateWeights:
        rollout = required(rollout, "rollout")
        log_ratios = rollout.reference_log_ratios()
        if self.estimator == "reward":
            return SurrogateWeights(None, score_function_weights(rollout, log_ratios, config.epsilon_is))
        slopes = torch.ones_like(log_ratios)
        if self.estimator == "sequence_k3":
            excess = torch.expm1(-log_ratios)  # pi_ref / pi - 1
            slopes = torch.where(excess + log_ratios > _MOST_K3, 0, -excess)
        return SurrogateWeights(None, slopes / slopes.shape[-1])

    def _optimal_mass(self, q: FloatArray, beta: FloatArray, correct_fraction: FloatArray | None) -> FloatArray:
        return expit(logit(q) + 1 / beta)
