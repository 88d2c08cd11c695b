"""What the experiments report about a policy; every function gives one number per context or per batch of groups."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cokl.policy import Policy
from cokl.support.errors import InputError


def correctness(policy: Policy) -> Tensor:
    """P_corr: the probability of a correct action (Eq. 5).

    Args:
        policy: contexts (...).

    Returns:
        (...), in [0, 1]: summed over correct actions, not over contexts.

    Examples:
        >>> policy = Policy(torch.tensor([2.0, 1.0, 0.0]), CorrectSet.from_mask(torch.tensor([True, True, False])))
        >>> correctness(policy)
        tensor(0.9100)
    """
    return policy.mass.clamp(max=1)


def coverage(policy: Policy, k: int, conditional: bool = False) -> Tensor:
    """Expected share of a context's correct actions that `k` independent draws hit at least once.

    The paper's coverage@k (Section 5), exactly: the mean over correct y of 1 - (1 - p(y))^k, where p is pi, or pi+ if
    `conditional`.

    Args:
        policy: contexts (...).
        k: draws, at least 1.
        conditional: draw from pi+ (Eq. 6) in place of pi.

    Returns:
        (...), in [0, 1]: averaged over correct actions, not over contexts.

    Raises:
        ValueError: k < 1, or a context without a correct action, where the share is undefined.

    Examples:
        >>> policy = Policy(torch.tensor([2.0, 1.0, 0.0]), CorrectSet.from_mask(torch.tensor([True, True, False])))
        >>> coverage(policy, k=2)
        tensor(0.6588)
    """
    if k < 1:
        raise ValueError(f"k: expected at least one draw, got {k}")
    if policy.correct.actions.shape[-1] == 0 or bool((policy.correct.sizes == 0).any()):
        raise ValueError("correct: coverage is undefined for a context without a correct action")
    probs = (policy.conditional_probs if conditional else policy.correct_probs).clamp(max=1)
    hit = -torch.expm1(k * torch.log1p(-probs))
    return hit.sum(-1) / policy.correct.sizes


def pass_at_k(policy: Policy, k: int) -> Tensor:
    """Probability 1 - (1 - Z)^k that one of `k` independent draws is correct, exactly.

    Args:
        policy: contexts (...).
        k: draws, at least 1.

    Returns:
        (...), in [0, 1], for each context.

    Raises:
        ValueError: k < 1.

    Examples:
        >>> policy = Policy(torch.tensor([2.0, 1.0, 0.0]), CorrectSet.from_mask(torch.tensor([True, True, False])))
        >>> pass_at_k(policy, k=2)
        tensor(0.9919)
    """
    if k < 1:
        raise ValueError(f"k: expected at least one draw, got {k}")
    return -torch.expm1(k * policy.log_incorrect_mass)


def expected_zero_correct_rate(policy: Policy, group_size: int) -> Tensor:
    """Probability (1 - Z)^G that a group of draws holds no correct action (Appendix B).

    Args:
        policy: contexts (...).
        group_size: G, at least 1.

    Returns:
        (...), in [0, 1], for each context.

    Raises:
        ValueError: group_size < 1.

    Examples:
        >>> policy = Policy(torch.tensor([2.0, 1.0, 0.0]), CorrectSet.from_mask(torch.tensor([True, True, False])))
        >>> expected_zero_correct_rate(policy, group_size=2)
        tensor(0.0081)
    """
    if group_size < 1:
        raise ValueError(f"group_size: expected at least one draw, got {group_size}")
    return (group_size * policy.log_incorrect_mass).exp()


def dual_anchor(
    scores: npt.ArrayLike, zero: npt.ArrayLike, hundred: npt.ArrayLike, name: str = "scores"
) -> npt.NDArray[np.float64]:
    """100 (score - zero) / (hundred - zero), elementwise, exact at the anchors (Appendix E.5).

    Retention: zero is GRPO w/o KL, hundred is the base model. Adaptation: zero is the base, hundred is GRPO w/o KL.

    Args:
        scores: (...), in any unit.
        zero: the score that becomes 0, in that unit; broadcasts against `scores`.
        hundred: the score that becomes 100; broadcasts against `scores`.
        name: what the error message calls the scores.

    Returns:
        (...), in points; below 0 and above 100 for scores outside the anchors.

    Raises:
        InputError: the anchors coincide, so that nothing was forgotten or learned to compare with.

    Examples:
        >>> dual_anchor([0.25, 0.75], zero=0.25, hundred=1.25)
        array([ 0., 50.])
    """
    scores, zero, hundred = (np.asarray(value, dtype=np.float64) for value in (scores, zero, hundred))
    if np.any(zero == hundred):
        raise InputError(f"{name}: the anchors base and grpo score the same, so there is nothing to normalize by")
    normalized: npt.NDArray[np.float64] = 100 * ((scores - zero) / (hundred - zero))
    return normalized
