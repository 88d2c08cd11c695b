"""Correct-only reverse KL, the mirror image of replay: D_KL(pi+ || pi_ref).

The paper names this baseline but gives no formula. Two readings are kept apart by `form`:

- "conditional": D_KL(pi+ || pi_ref) = D_KL(pi+ || pi_ref+) - log q. The sampled side is conditioned, as in the paper's
  D_KL(pi_ref+ || pi). Logit gradient: pi+ * (log(pi+ / pi_ref+) - D_KL(pi+ || pi_ref+)). Sampled: delta (gamma) times
  the centred log-ratio, where centring on the other correct responses removes the unknown log(Z / q); a group with a
  single correct response carries no information about pi+ and gets zero weights. Population optimum: Z* = 1.
- "restricted": sum over correct y of pi(y) log(pi(y) / pi_ref(y)) = Z log(Z / q) + Z D_KL(pi+ || pi_ref+), the reverse
  KL's own summands masked by correctness. Logit gradient: r pi (log(pi / pi_ref) + 1) - pi * sum of it. Sampled: the
  score-function form with cost r (log(pi / pi_ref) + 1). It is negative for Z < q, least at Z = q / e. Population
  optimum: stationarity of z - beta z log(z / q) gives Z* = min(1, q exp(1 / beta - 1)), below q for beta > 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from cokl.groups import (
    ResponseGroups,
    SurrogateConfig,
    SurrogateWeights,
    required,
    rollout_weights,
    score_function_weights,
)
from cokl.policy import Policy, centred, expectation
from cokl.regularizers import register
from cokl.regularizers.base import FloatArray, Regularizer
from cokl.support.assumptions import assumption
from cokl.support.errors import InputError

_Form = Literal["conditional", "restricted"]


@register
@dataclass(frozen=True)
class CorrectReverseKL(Regularizer):
    """Reverse KL over the correct actions. Range [-log q, inf] ("conditional") or [-q / e, inf] ("restricted").

    Raises InputError for another form.
    """

    name = "correct_reverse_kl"
    label = "Correct-only reverse KL"
    conditional = True
    streams = ("rollout",)
    compares_with_reference = True

    form: _Form = assumption(
        "conditional",
        "'restricted' also acts on the correctness mass and, for beta > 1, pushes it below the reference's",
    )
    """Definition of correct-only reverse KL: KL(pi+ || pi_ref), or the reverse KL's sum over correct actions only."""

    def __post_init__(self) -> None:
        if self.form not in get_args(_Form):
            raise InputError(
                f"correct_reverse_kl.form: expected one of {', '.join(get_args(_Form))}, got {self.form!r}"
            )

    def value(self, policy: Policy, reference: Policy) -> Tensor:
        if self.form == "restricted":
            return expectation(policy.correct_probs, policy.correct_log_probs - reference.correct_log_probs)
        return expectation(policy.conditional_probs, policy.conditional_log_probs - reference.correct_log_probs)

    def logit_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        log_ratios = policy.correct_log_probs - reference.correct_log_probs
        dense = torch.zeros_like(policy.logits)
        if self.form == "restricted":
            costs = torch.where(policy.correct_probs > 0, log_ratios + 1, 0)
            return centred(policy.probs, policy.correct.add_to(dense, costs))
        return policy.correct.add_to(dense, centred(policy.conditional_probs, log_ratios))

    def surrogate_weights(
        self, reference: ResponseGroups | None, rollout: ResponseGroups | None, config: SurrogateConfig
    ) -> SurrogateWeights:
        rollout = required(rollout, "rollout")
        log_ratios = rollout.reference_log_ratios()
        if self.form == "restricted":
            costs = rollout.rewards * (log_ratios + 1)
            return SurrogateWeights(None, score_function_weights(rollout, costs, config.epsilon_is))
        gamma = rollout_weights(rollout, config.epsilon_is)
        others = gamma.sum(-1, keepdim=True) - gamma
        others_mean = ((gamma * log_ratios).sum(-1, keepdim=True) - gamma * log_ratios) / others.clamp_min(1e-12)
        alone = rollout.rewards.sum(-1, keepdim=True) < 2
        return SurrogateWeights(None, (gamma * (log_ratios - others_mean)).masked_fill(alone, 0))

    def _optimal_mass(self, q: FloatArray, beta: FloatArray, correct_fraction: FloatArray | None) -> FloatArray:
        if self.form == "restricted":
            return np.exp(np.minimum(0, np.log(q) + 1 / beta - 1))
        return np.ones_like(q)
