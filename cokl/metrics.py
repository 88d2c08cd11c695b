"""What the experiments report about a policy; every function gives one number per context or per batch of groups.

Assumption beyond the paper: in a majority vote the correct answers are one party, however they are written, and
incorrect ones are told apart as they are written; responses without an answer do not vote, and a tie is drawn by lot.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cokl.policy import Policy
from cokl.regularizers.cokl import CoKL
from cokl.support.errors import InputError


def correctness(policy: Policy) -> Tensor:
    """P_corr for each context, (...), in [0, 1]: the probability of a correct action (Eq. 5)."""
    return policy.mass.clamp(max=1)


def coverage(policy: Policy, k: int, conditional: bool = False) -> Tensor:
    """Expected share of a context's correct actions that `k` independent draws hit at least once, (...), in [0, 1].

    Exact: the mean over correct y of 1 - (1 - p(y))^k, with p = pi, or pi+ if `conditional`.
    Raises ValueError for k < 1 and for a context without a correct action, where the share is undefined.
    """
    if k < 1:
        raise ValueError(f"k: expected at least one draw, got {k}")
    if policy.correct.actions.shape[-1] == 0 or bool((policy.correct.sizes == 0).any()):
        raise ValueError("correct: coverage is undefined for a context without a correct action")
    probs = (policy.conditional_probs if conditional else policy.correct_probs).clamp(max=1)
    hit = -torch.expm1(k * torch.log1p(-probs))
    return hit.sum(-1) / policy.correct.sizes


class HasMass(Protocol):
    """A policy that knows log(1 - Z) of each context, over actions or over sequences."""

    @property
    def log_incorrect_mass(self) -> Tensor:
        """log(1 - Z) of each context, (...), in nats."""
        ...


def pass_at_k(policy: HasMass, k: int) -> Tensor:
    """Probability 1 - (1 - Z)^k for each context, (...), in [0, 1], that one of `k` independent draws is correct.

    Exact. Raises ValueError for k < 1.
    """
    if k < 1:
        raise ValueError(f"k: expected at least one draw, got {k}")
    return -torch.expm1(k * policy.log_incorrect_mass)


def sampled_pass_at_k(correct: Sequence[bool], k: int) -> float:
    """Probability that k of these responses, drawn without replacement, hold a correct one, in [0, 1].

    1 - C(n - c, k) / C(n, k) (Chen et al., arXiv 2107.03374), unbiased for k fresh responses. Raises ValueError for k
    outside 1 to n.
    """
    n, c = len(correct), sum(correct)
    if not 1 <= k <= n:
        raise ValueError(f"k: expected 1 to {n}, got {k}")
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def majority(correct: Sequence[bool], answers: Sequence[str]) -> float:
    """Probability that the answer given most often is correct, in [0, 1]; 0 without any answer."""
    right = sum(correct)
    wrong = Counter(answer for answer, ok in zip(answers, correct, strict=True) if answer and not ok)
    most = max([right, *wrong.values()])
    if most == 0 or right < most:
        return 0.0
    return 1 / (1 + sum(count == most for count in wrong.values()))


def conditional_kl(policy: Policy, reference: Policy) -> Tensor:
    """D_KL(pi_ref+ || pi+) for each context, (...), in nats (Eq. 8)."""
    return CoKL().value(policy, reference)


def expected_zero_correct_rate(policy: Policy, group_size: int) -> Tensor:
    """Probability (1 - Z)^G for each context, (...), that a group of `group_size` draws holds no correct action.

    Raises ValueError for group_size < 1.
    """
    if group_size < 1:
        raise ValueError(f"group_size: expected at least one draw, got {group_size}")
    return (group_size * policy.log_incorrect_mass).exp()


def dual_anchor(
    scores: npt.ArrayLike, zero: npt.ArrayLike, hundred: npt.ArrayLike, name: str = "scores"
) -> npt.NDArray[np.float64]:
    """100 (score - zero) / (hundred - zero), elementwise, exact at the anchors, which broadcast against the scores.

    Retention: zero is GRPO w/o KL, hundred is the base model. Adaptation: zero is the base, hundred is GRPO w/o KL.
    Raises InputError, naming `name`, where the anchors coincide: nothing was forgotten (or learned) to compare with;
    and where the quotient is beyond what float64 can hold.
    """
    scores, zero, hundred = (np.asarray(value, dtype=np.float64) for value in (scores, zero, hundred))
    if np.any(zero == hundred):
        raise InputError(f"{name}: the anchors base and grpo score the same, so there is nothing to normalize by")
    with np.errstate(over="ignore", invalid="ignore"):
        apart = hundred - zero
        normalized: npt.NDArray[np.float64] = 100 * ((scores - zero) / apart)
    if not (np.isfinite(normalized).all() and np.isfinite(apart).all()):
        raise InputError(f"{name}: a score or an anchor is too large, or the anchors too close, to normalize by")
    return normalized
