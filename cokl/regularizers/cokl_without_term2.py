"""CoKL without term 2: only the cross-entropy -E_{ref+}[log pi] of Eq. 9 (ablation "w/o term2").

It differs from replay by the entropy of pi_ref+, a constant, and shares its gradient, surrogate and
optimum; the paper's Table 2 repeats that method's figures.
"""

from __future__ import annotations

from torch import Tensor

from cokl.policy import Policy, expectation
from cokl.regularizers import register
from cokl.regularizers.correct_forward_kl import CorrectForwardKL


@register
class CoKLWithoutTerm2(CorrectForwardKL):
    """Cross-entropy from the correctness-conditioned reference to the full policy. Range [0, inf]."""

    name = "cokl_without_term2"
    label = "Replay (ablation)"

    def value(self, policy: Policy, reference: Policy) -> Tensor:
        return -expectation(reference.conditional_probs, policy.correct_log_probs)
