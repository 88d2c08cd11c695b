"""The correctness decomposition of a full-policy KL (Eq. 7 and Appendix A)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cokl.policy import Policy, expectation, normalised


class KLDecomposition(NamedTuple):
    """The three summands of D_KL(source || target) in nats, each (...) and >= 0; they already carry their weights.

    Attributes:
        mass: D_KL(Bern(Z_source) || Bern(Z_target)), drift of the total correctness.
        correct: Z_source D_KL(source+ || target+), drift within the correct actions.
        incorrect: (1 - Z_source) D_KL(source- || target-), drift within the incorrect actions.
    """

    mass: Tensor
    correct: Tensor
    incorrect: Tensor

    @property
    def total(self) -> Tensor:
        """(...): the full KL, which the three summands add up to."""
        return self.mass + self.correct + self.incorrect


def decompose_kl(source: Policy, target: Policy) -> KLDecomposition:
    """Split D_KL(source || target), summed over actions, per context.

    `decompose_kl(reference, policy)` is the forward KL of Eq. 7, `decompose_kl(policy, reference)` the reverse KL of
    Appendix D. Boundary cases follow the extended-value convention: a side that the source never visits contributes
    zero, and one that only the target never visits contributes +inf.

    Args:
        source: contexts (...), over which the KL averages.
        target: the same contexts and correct sets.

    Returns:
        The three summands, (...) each; `total` is their sum.

    Examples:
        >>> correct = CorrectSet.from_mask(torch.tensor([True, True, False]))
        >>> decompose_kl(Policy(torch.zeros(3), correct), Policy(torch.tensor([2.0, 1.0, 0.0]), correct))
        KLDecomposition(mass=tensor(0.2289), correct=tensor(0.0801), incorrect=tensor(0.))
    """
    mass, incorrect_mass = source.log_mass.exp(), source.log_incorrect_mass.exp()
    bernoulli = torch.stack([mass, incorrect_mass], -1)
    log_ratios = torch.stack(
        [source.log_mass - target.log_mass, source.log_incorrect_mass - target.log_incorrect_mass], -1
    )
    source_incorrect, target_incorrect = _incorrect_log_probs(source), _incorrect_log_probs(target)
    return KLDecomposition(
        mass=expectation(bernoulli, log_ratios),
        correct=_weighted(mass, source.conditional_log_probs, target.conditional_log_probs),
        incorrect=_weighted(incorrect_mass, source_incorrect, target_incorrect),
    )


def _weighted(mass: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """`mass` times the KL of two conditional log-probabilities, zero where the mass is zero and the KL infinite."""
    return expectation(mass[..., None], expectation(source.exp(), source - target)[..., None])


def _incorrect_log_probs(policy: Policy) -> Tensor:
    """(..., A): log pi-, -inf on correct actions; normalised before the softmax, so exact for tiny 1 - Z."""
    return normalised(policy.logits.masked_fill(policy.correct.mask, -torch.inf))
