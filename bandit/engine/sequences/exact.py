"""GRPO and the divergences between two policies in expectation over all responses.

Axes as in `recursions`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bandit.engine.sampled import expected_advantages
from bandit.engine.sequences.recursions import SequencePolicy, finite
from cokl.decomposition import KLDecomposition


def grpo_gradient(policy: SequencePolicy, group_size: int) -> Tensor:
    """(S, V, R, B): logit gradient of each prompt's expected -J_GRPO (Eqs. 1-4) over groups that the policy draws.

    On-policy it is -(A+ - A-) grad Z / T, with the mean advantages A+ and A- of correct and incorrect responses; J_GRPO
    is a mean over tokens.
    """
    correct, incorrect = expected_advantages(policy.log_mass, policy.log_incorrect_mass, group_size)
    scale = (incorrect - correct) * policy.mass / len(policy.correct.probs)
    return scale * policy.log_mass_logit_gradient()


def conditional_kl(source: SequencePolicy, target: SequencePolicy) -> Tensor:
    """(R, B): D_KL(source+ || target+), which CoKL penalizes (Eq. 8), in nats; zero where one is never correct."""
    mean = source.correct.expectation(source.log_probs - target.log_probs)
    possible = (target.log_mass > -torch.inf) & (source.log_mass > -torch.inf)
    return torch.where(possible, mean + (finite(target.log_mass) - finite(source.log_mass)), 0)


def drifts(source: SequencePolicy, target: SequencePolicy) -> KLDecomposition:
    """D_KL(source || target) split into mass, correct and incorrect drift (Eq. 7), (R, B) each."""
    ratio = _log_ratio(source.log_mass, target.log_mass)
    # From the incorrect responses themselves: 1 - Z is finite in logs where Z rounds to 1.
    incorrect_ratio = _log_ratio(source.incorrect.log_mass, target.incorrect.log_mass)
    of_mass = source.mass * ratio + (1 - source.mass) * incorrect_ratio
    costs = source.log_probs - target.log_probs
    correct = source.mass * (source.correct.expectation(costs) - ratio)
    incorrect = (1 - source.mass) * (source.incorrect.expectation(costs) - incorrect_ratio)
    return KLDecomposition(of_mass, correct, incorrect)


def _log_ratio(source: Tensor, target: Tensor) -> Tensor:
    """`source` - `target`, zero where the source has nothing."""
    return torch.where(source > -torch.inf, source - target, 0)
