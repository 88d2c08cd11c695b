"""A categorical policy over a finite action space, seen through the correctness of its actions (Eqs. 5-6).

Shapes: `...` is any number of leading axes (runs, contexts), `A` the number of actions and `K` the size of the largest
correct set. Everything is computed in log space: probabilities are only formed where an underflow to zero is harmless.

Assumption beyond the paper: a context without any correct action has Z = 0 and an empty pi+, whose log-probabilities
are all -inf and whose probabilities are all zero. This is the exact counterpart of the paper's zero weights for a group
without a correct response, so every correctness-conditioned term of such a context is zero, never NaN. Of a reference
that gives no correct action a probability, likewise, what compares with its empty pi_ref+ is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from cokl.support.shown import shapes

_Axis = int | slice | list[int] | Tensor | None
Index = _Axis | tuple[_Axis, ...]
"""What selects along leading axes."""


def expectation(probs: Tensor, values: Tensor) -> Tensor:
    """Expectation of `values`, summed over the last axis; a zero probability silences any value, infinite or NaN.

    Args:
        probs: (..., A), >= 0; need not sum to one.
        values: (..., A), broadcasts against `probs`.

    Returns:
        (...), in the unit of `values`.

    Examples:
        >>> expectation(torch.tensor([0.25, 0.75, 0.0]), torch.tensor([4.0, 8.0, torch.inf]))
        tensor(7.)
    """
    return (probs * torch.where(probs > 0, values, 0)).sum(-1)


def centred(probs: Tensor, values: Tensor) -> Tensor:
    """`probs * (values - E_probs[values])`: the logit gradient of an expectation of log-ratios.

    Args:
        probs: (..., A), a distribution over the last axis.
        values: (..., A), in nats; any value where the probability is zero.

    Returns:
        (..., A), which sums to zero over the last axis. Where some value is +inf at a probability above zero, the limit
        of ever larger values there: +inf at these, and -inf at the others of a probability above zero.

    Examples:
        >>> centred(torch.tensor([0.25, 0.75]), torch.tensor([4.0, 8.0]))
        tensor([-0.7500,  0.7500])
    """
    values = torch.where(probs > 0, values, 0)
    infinite = values.isposinf()
    limit = torch.where(infinite, torch.inf, -torch.inf).to(probs).masked_fill(probs == 0, 0)
    finite = probs * (values - (probs * values).sum(-1, keepdim=True))
    return torch.where(infinite.any(-1, keepdim=True), limit, finite)


def normalised(logits: Tensor) -> Tensor:
    """Log-softmax over the last axis; where all logits are -inf, the distribution is empty and they stay -inf.

    Args:
        logits: (..., A).

    Returns:
        (..., A), in nats, <= 0.

    Examples:
        >>> normalised(torch.tensor([[0.0, 0.0], [-torch.inf, -torch.inf]]))
        tensor([[-0.6931, -0.6931],
                [   -inf,    -inf]])
    """
    largest = logits.detach().amax(-1, keepdim=True).clamp_min(torch.finfo(logits.dtype).min)
    shifted = logits - largest
    total = shifted.exp().sum(-1, keepdim=True)  # at least 1, the largest summand; a clamp has no gradient there
    return shifted - torch.where(total == 0, 1, total).log()


@dataclass(frozen=True, eq=False)
class CorrectSet:
    """The correct actions of each context, gathered into `K` columns; smaller sets are padded.

    Attributes:
        actions: (..., K) int64, indices into the action axis; padding holds any index that is in range.
        valid: (..., K) bool, False on padding; None when every set has exactly K >= 1 members.
        num_actions: A.

    Examples:
        >>> CorrectSet.from_mask(torch.tensor([[True, False, True], [False, True, False]])).sizes
        tensor([2, 1])
    """

    actions: Tensor
    valid: Tensor | None
    num_actions: int

    __repr__ = shapes

    @classmethod
    def from_mask(cls, mask: Tensor) -> CorrectSet:
        """Build from a mask.

        Args:
            mask: (..., A) bool, True for correct actions.

        Returns:
            The same sets; K is the size of the largest, and at least 1.

        Raises:
            ValueError: `mask` is not boolean, or has no action axis.

        Examples:
            >>> CorrectSet.from_mask(torch.tensor([False, True, True])).actions
            tensor([1, 2])
        """
        if mask.dtype != torch.bool or mask.dim() == 0 or mask.shape[-1] == 0:
            raise ValueError(
                f"correct: expected a boolean mask of shape (..., A), got {mask.dtype} {tuple(mask.shape)}"
            )
        sizes = mask.sum(-1)
        largest = max(int(sizes.max()), 1) if sizes.numel() else 1
        # False sorts before True, so a stable sort of the incorrect mask brings correct actions to the front, in order.
        actions = torch.argsort(~mask, dim=-1, stable=True)[..., :largest]
        valid = torch.arange(largest, device=mask.device) < sizes[..., None]
        return cls(actions, None if bool(valid.all()) else valid, mask.shape[-1])

    def __getitem__(self, index: Index) -> CorrectSet:
        """Select contexts by indexing the leading axes."""
        return CorrectSet(self.actions[index], None if self.valid is None else self.valid[index], self.num_actions)

    @cached_property
    def mask(self) -> Tensor:
        """(..., A) bool: True for correct actions."""
        member = torch.ones_like(self.actions, dtype=torch.bool) if self.valid is None else self.valid
        counts = torch.zeros((*self.actions.shape[:-1], self.num_actions), dtype=torch.int64, device=member.device)
        return counts.scatter_add_(-1, self.actions, member.long()) > 0

    @cached_property
    def sizes(self) -> Tensor:
        """(...) int64: how many actions are correct."""
        if self.valid is None:
            return torch.full(self.actions.shape[:-1], self.actions.shape[-1], device=self.actions.device)
        return self.valid.sum(-1)

    def gather(self, dense: Tensor, padding: float) -> Tensor:
        """Columns of `dense` (..., A) at the correct actions, (..., K); `padding` where a set is smaller than K."""
        gathered = dense.gather(-1, self.actions.expand(*dense.shape[:-1], -1))
        return gathered if self.valid is None else gathered.masked_fill(~self.valid, padding)

    def add_to(self, dense: Tensor, values: Tensor) -> Tensor:
        """Add `values` (..., K), zero on padding, to the correct columns of `dense` (..., A) in place; return it."""
        return dense.scatter_add_(-1, self.actions.expand(*dense.shape[:-1], -1), values.expand(*dense.shape[:-1], -1))


@dataclass(frozen=True, eq=False)
class Policy:
    """A softmax policy and the correctness of its actions.

    Attributes:
        logits: (..., A) floating, finite (or -inf for an action of probability zero); need not be normalised.
        correct: the correct sets; their leading axes broadcast against the logits'.

    Raises:
        ValueError: the two disagree on the number of actions.

    Examples:
        >>> policy = Policy(torch.tensor([2.0, 1.0, 0.0]), CorrectSet.from_mask(torch.tensor([True, True, False])))
        >>> policy.mass, policy.conditional_probs
        (tensor(0.9100), tensor([0.7311, 0.2689]))
    """

    logits: Tensor
    correct: CorrectSet

    __repr__ = shapes

    def __post_init__(self) -> None:
        if self.correct.num_actions != self.logits.shape[-1]:
            raise ValueError(
                f"correct: expected {self.logits.shape[-1]} actions, as the logits have, got {self.correct.num_actions}"
            )

    @classmethod
    def from_log_probs(cls, log_probs: Tensor, correct: CorrectSet) -> Policy:
        """A policy from log-probabilities, which saves normalising them again.

        Args:
            log_probs: (..., A), in nats, already normalised.
            correct: the correct sets.

        Returns:
            The policy with these log-probabilities.

        Raises:
            ValueError: the two disagree on the number of actions.

        Examples:
            >>> log_probs, correct = torch.tensor([0.25, 0.75]).log(), CorrectSet.from_mask(torch.tensor([True, False]))
            >>> Policy.from_log_probs(log_probs, correct).mass
            tensor(0.2500)
        """
        policy = cls(log_probs, correct)
        policy.__dict__["log_probs"] = log_probs
        return policy

    def __getitem__(self, index: Index) -> Policy:
        """Select along the leading axes of the logits; the correct sets must have the same leading axes."""
        return Policy(self.logits[index], self.correct[index])

    @cached_property
    def log_probs(self) -> Tensor:
        """(..., A): log pi."""
        return self.logits.log_softmax(-1)

    @cached_property
    def probs(self) -> Tensor:
        """(..., A): pi."""
        return self.log_probs.exp() if "log_probs" in self.__dict__ else self.logits.softmax(-1)

    @cached_property
    def correct_log_probs(self) -> Tensor:
        """(..., K): log pi of the correct actions, -inf on padding."""
        return self.correct.gather(self.log_probs, -torch.inf)

    @cached_property
    def correct_probs(self) -> Tensor:
        """(..., K): pi of the correct actions, 0 on padding."""
        return self.correct.gather(self.probs, 0.0)

    @cached_property
    def conditional_log_probs(self) -> Tensor:
        """(..., K): log pi+ (Eq. 6), -inf on padding. Independent of the softmax's normaliser, so exact for tiny Z."""
        return normalised(self.correct.gather(self.logits, -torch.inf))

    @cached_property
    def conditional_probs(self) -> Tensor:
        """(..., K): pi+ (Eq. 6), 0 on padding."""
        return self.conditional_log_probs.exp()

    @cached_property
    def solvable(self) -> Tensor:
        """(..., 1) bool: whether some correct action has a probability, however small, so that pi+ is not empty."""
        return (self.conditional_probs > 0).any(-1, keepdim=True)

    @cached_property
    def mass(self) -> Tensor:
        """(...): Z (Eq. 5)."""
        return self.correct_probs.sum(-1)

    @cached_property
    def log_mass(self) -> Tensor:
        """(...): log Z, -inf without a correct action."""
        return self.correct_log_probs.logsumexp(-1)

    @cached_property
    def log_incorrect_mass(self) -> Tensor:
        """(...): log(1 - Z), summed over incorrect actions, so exact for Z near 1; -inf if all are correct."""
        return self.log_probs.masked_fill(self.correct.mask, -torch.inf).logsumexp(-1)

    def mass_logit_gradient(self) -> Tensor:
        """(..., A): gradient of Z with respect to the logits, pi * (r - Z)."""
        return self.correct.add_to(self.probs * -self.mass[..., None], self.correct_probs)

    def log_mass_logit_gradient(self) -> Tensor:
        """(..., A): logit gradient of log Z, pi+ - pi (Appendix B); zero without a correct action."""
        return self.correct.add_to(-self.probs * self.solvable, self.conditional_probs)
