"""CoKL without term 1: only the normalisation correction log Z of Eq. 9 (ablation "w/o term1").

Logit gradient: pi+ - pi. Sampled: gamma on rollouts. It pushes the correctness mass down and preserves nothing.
Population optimum (beyond the paper): Z - beta log Z grows without bound as Z -> 0, so the supremum is at Z* = 0 for
every beta > 0. For beta < 1 there is besides a local maximum at Z = 1, with the valley between them at Z = beta.
"""

from __future__ import annotations

from cokl.groups import SurrogateWeights, rollout_weights
from cokl.log_linear import LogLinear
from cokl.regularizers import register
from cokl.regularizers.base import Regularizer, certain_mass


@register
class CoKLWithoutTerm1(Regularizer):
    """log Z of the policy. Range [-inf, 0]; 0 by convention for a context without a correct action."""

    name = "cokl_without_term1"
    label = "CoKL w/o term 1"
    conditional = True

    def value(self, policy, reference):
        return policy.log_mass.masked_fill(policy.correct.sizes == 0, 0)

    def log_linear(self):
        return LogLinear(log_mass=1)

    def logit_gradient(self, policy, reference):
        return policy.log_mass_logit_gradient()

    def surrogate_weights(self, reference, rollout, config):
        return SurrogateWeights(None, rollout_weights(rollout, config.epsilon_is))

    def _optimal_mass(self, q, beta, correct_fraction):
        return 0 * certain_mass(q, beta)
