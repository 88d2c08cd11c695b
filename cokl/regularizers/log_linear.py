"""Regularizers that are expectations of log-probabilities, up to the logs of the correctness masses.

D = E_measure[a log pi + b log pi_ref] + c log Z + d log q. The log-probability of a sequence is a sum over its tokens.
So such a D needs only how often a measure visits each token, which recursions give exactly for any length.
The Jensen-Shannon divergence is not of this form: log(pi + pi_ref) is not a sum over tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Measure = Literal["policy", "policy_given_correct", "policy_and_correct", "reference", "reference_given_correct"]
"""pi, pi+, pi restricted to correct responses (of total mass Z), pi_ref, pi_ref+."""


@dataclass(frozen=True)
class LogLinear:
    """D = E_measure[policy * log pi + reference * log pi_ref] + log_mass * log Z + log_reference_mass * log q.

    In nats. A context without a correct response has D = 0 if the measure or a mass needs a correct response.

    Attributes:
        measure: what the expectation is over, one of `Measure`.
        policy: coefficient of log pi.
        reference: coefficient of log pi_ref.
        log_mass: coefficient of log Z.
        log_reference_mass: coefficient of log q.
    """

    measure: Measure = "policy"
    policy: float = 0.0
    reference: float = 0.0
    log_mass: float = 0.0
    log_reference_mass: float = 0.0

    @property
    def conditional(self) -> bool:
        """Whether it is 0 in a context without a correct response."""
        return "correct" in self.measure or self.log_mass != 0 or self.log_reference_mass != 0
