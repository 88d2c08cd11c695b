"""Policies and regularizers at 50 digits, written straight from their definitions and sharing no code with `cokl`.

They are computed at mpmath's working precision, which a claim's check sets (`theory.claim.WORKING_DIGITS`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import torch
from mpmath import mpf

from cokl.policy import CorrectSet, Policy
from cokl.support.errors import InputError


@dataclass(frozen=True)
class ExactPolicy:
    """A distribution over A actions, `probs`, and which of them are correct."""

    probs: tuple[mpf, ...]
    correct: tuple[bool, ...]

    @classmethod
    def from_logits(cls, logits: Iterable[Any], correct: Iterable[Any]) -> ExactPolicy:
        """The softmax of A logits."""
        weights = [mpmath.exp(mpf(logit)) for logit in logits]
        total = mpmath.fsum(weights)
        return cls(tuple(weight / total for weight in weights), tuple(bool(flag) for flag in correct))

    @property
    def mass(self) -> mpf:
        """Z (Eq. 5)."""
        return mpmath.fsum(prob for prob, flag in zip(self.probs, self.correct, strict=True) if flag)

    @property
    def plus(self) -> list[mpf]:
        """pi+ over all actions (Eq. 6)."""
        return [prob / self.mass if flag else mpf(0) for prob, flag in zip(self.probs, self.correct, strict=True)]

    @property
    def minus(self) -> list[mpf]:
        """pi- over all actions (Eq. 6)."""
        wrong = mpmath.fsum(prob for prob, flag in zip(self.probs, self.correct, strict=True) if not flag)
        return [mpf(0) if flag else prob / wrong for prob, flag in zip(self.probs, self.correct, strict=True)]


def kl(source: Sequence[mpf], target: Sequence[mpf]) -> mpf:
    """D_KL(source || target), +inf where the source leaves the target's support."""
    if any(a > 0 and b == 0 for a, b in zip(source, target, strict=True)):
        return mpf("inf")
    return mpmath.fsum(a * mpmath.log(a / b) for a, b in zip(source, target, strict=True) if a > 0)


@dataclass(frozen=True)
class Problem:
    """A reference and a policy over A actions, as float64 logits, and which actions are correct (A,).

    Raises InputError for a mask without a correct or without an incorrect action.
    """

    reference_logits: np.ndarray
    policy_logits: np.ndarray
    correct: np.ndarray

    def __post_init__(self) -> None:
        require_both_kinds(self.correct)

    @property
    def reference(self) -> Policy:
        """The reference as the toolkit has it, in float64."""
        return self._policy(self.reference_logits)

    @property
    def policy(self) -> Policy:
        """The policy as the toolkit has it, in float64."""
        return self._policy(self.policy_logits)

    @property
    def exact_reference(self) -> ExactPolicy:
        """The reference at mpmath's working precision."""
        return ExactPolicy.from_logits(self.reference_logits, self.correct)

    @property
    def exact_policy(self) -> ExactPolicy:
        """The policy at mpmath's working precision."""
        return ExactPolicy.from_logits(self.policy_logits, self.correct)

    def _policy(self, logits: np.ndarray) -> Policy:
        return Policy(torch.from_numpy(logits), CorrectSet.from_mask(torch.from_numpy(self.correct)))


def random_problems(seed: int, count: int, actions: tuple[int, int] = (3, 24)) -> list[Problem]:
    """`count` problems with A in `actions` and 1 to A - 1 correct actions; logits' standard deviation 0.1 to 30."""
    rng = np.random.default_rng(seed)
    problems = []
    for _ in range(count):
        size = int(rng.integers(actions[0], actions[1] + 1))
        correct = np.zeros(size, dtype=bool)
        correct[rng.choice(size, rng.integers(1, size), replace=False)] = True
        spreads = 10 ** rng.uniform(-1, 1.5, size=2)
        problems.append(Problem(spreads[0] * rng.normal(size=size), spreads[1] * rng.normal(size=size), correct))
    return problems


def require_both_kinds(correct: np.ndarray) -> None:
    """Raises InputError unless the mask `correct` (A,) holds a correct and an incorrect action."""
    if correct.dtype != bool or correct.ndim != 1 or not correct.any() or correct.all():
        raise InputError(
            f"correct: expected a boolean mask (A,) with at least one correct and one incorrect action, got {correct}"
        )
