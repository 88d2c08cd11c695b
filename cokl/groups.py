"""Groups of sampled responses and the self-normalised weights over them (Eqs. 11-17).

Shapes: `N` prompt groups of `G` responses each. Group weights are computed over whole groups and carry no gradient, so
a loss made of them, `sum(weight * sequence log-likelihood)`, is exact under any split into micro-batches.

What the paper leaves open in the surrogates is in the fields of `SurrogateConfig`.

Assumption beyond the paper: a response's log-likelihood in the regularizer is the sum over its tokens, as Eq. 13 has
it, while the GRPO loss beside it is a mean over them (Eq. 4). So per token the regularizer weighs more than the
GRPO loss, by a factor of the length: thousands for reasoning models. A mean in both would make the effective
coefficient beta / length. With means CoKL no longer leaves the correctness mass free if correct answers differ in
length (measured at commit 3dd94fc). The estimate of the conditional KL adds half a
correct and half an incorrect answer to each group, so that a group without a correct one has a finite logarithm.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cokl.support.shown import shapes
from cokl.surrogate_config import SurrogateConfig as SurrogateConfig  # noqa: PLC0414  re-exported

ROUNDING = 0.01
"""Nats by which rounding may lift a log-likelihood above 0, which it cannot exceed.

A log-softmax ends at 0. A kernel that subtracts a rounded normaliser may end above it, in float32 by some 1e-5 a token
at logits of 100, so by 0.01 over a thousand tokens of probability 1 if all err the same way. Less than 0.01 moves an
importance ratio by about 1 % at most. A negative log-likelihood that is given by mistake is above it, and so is the
likelihood of a short response; that of a long one is not, and passes.
"""


@dataclass(frozen=True, eq=False)
class ResponseGroups:
    """N groups of G responses to one prompt each, as sequence log-likelihoods in nats (Eq. 13).

    Attributes:
        log_probs: (N, G), under the current policy; may carry a gradient, which only `surrogate_loss` uses.
        rewards: (N, G), the verifier's verdicts, 0 or 1.
        behavior_log_probs: (N, G), under the policy that sampled the group; None when that is the current policy.
        reference_log_probs: (N, G), under the reference; for regularizers that compare with it on rollouts.

    Raises:
        ValueError: rewards outside {0, 1}, shapes that differ, or log-likelihoods that are not finite or above 0 by
            more than `ROUNDING`.

    Examples:
        >>> ResponseGroups(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([[1, 0, 1]])).rewards.shape
        torch.Size([1, 3])
    """

    log_probs: Tensor
    rewards: Tensor
    behavior_log_probs: Tensor | None = None
    reference_log_probs: Tensor | None = None

    __repr__ = shapes

    def __post_init__(self) -> None:
        if self.log_probs.dim() != 2:
            raise ValueError(f"log_probs: expected shape (N, G), got {tuple(self.log_probs.shape)}")
        for name in ("rewards", "behavior_log_probs", "reference_log_probs"):
            tensor = getattr(self, name)
            if tensor is not None and tensor.shape != self.log_probs.shape:
                raise ValueError(f"{name}: expected shape {tuple(self.log_probs.shape)}, got {tuple(tensor.shape)}")
        for name in ("log_probs", "behavior_log_probs", "reference_log_probs"):
            tensor = getattr(self, name)
            if tensor is not None:
                if not bool(tensor.isfinite().all()):
                    raise ValueError(f"{name}: expected finite log-likelihoods; a sampled response has probability > 0")
                refuse_above_zero(name, tensor)
        if not bool(((self.rewards == 0) | (self.rewards == 1)).all()):
            raise ValueError("rewards: expected verifier verdicts, 0 or 1; threshold continuous scores first")

    def reference_log_ratios(self) -> Tensor:
        """log pi - log pi_ref of each response, without gradient.

        Returns:
            (N, G), in nats.

        Raises:
            ValueError: there are no reference log-likelihoods.

        Examples:
            >>> log_probs, reference = torch.tensor([[-1.0]]), torch.tensor([[-3.0]])
            >>> ResponseGroups(log_probs, torch.tensor([[1]]), reference_log_probs=reference).reference_log_ratios()
            tensor([[2.]])
        """
        if self.reference_log_probs is None:
            raise ValueError("reference_log_probs: this regularizer needs the rollouts' log-likelihoods under pi_ref")
        return self.log_probs.detach() - self.reference_log_probs


def refuse_above_zero(name: str, log_probs: Tensor) -> None:
    """Refuse likelihoods, or negative log-likelihoods, in the place of log-likelihoods.

    Args:
        name: of the argument, for the message.
        log_probs: any shape, in nats.

    Returns:
        None.

    Raises:
        ValueError: one is above 0 by more than `ROUNDING`.

    Examples:
        >>> refuse_above_zero("log_probs", torch.tensor([-1.0, 1e-6]))
    """
    if bool((log_probs > ROUNDING).any()):
        raise ValueError(
            f"{name}: expected log-likelihoods, which are at most 0, got {float(log_probs.max()):g}; a likelihood "
            "needs .log(), a negative log-likelihood the other sign"
        )


class RowIndex(NamedTuple):
    """The rows, of a trainer's R, that answer each of N prompts: row numbers from 0 to R - 1, one line per prompt.

    A line is the same prompt in both streams. A stream without rows has shape (N, 0). A row may be in neither stream.

    Attributes:
        reference: (N, G_ref), the cached responses.
        rollout: (N, G), the fresh ones.
    """

    reference: Tensor
    rollout: Tensor

    @classmethod
    def of(cls, memberships: Iterable[tuple[str, int] | None]) -> RowIndex:
        """Build the index from the membership of each row.

        Args:
            memberships: for each of R rows its stream and its prompt's number; None for a row outside the
                regularization minibatch.

        Returns:
            The index, with the prompts in the order of their numbers.

        Raises:
            ValueError: groups of unequal size in one stream.

        Examples:
            >>> RowIndex.of([("rollout", 7), None, ("reference", 7), ("rollout", 7)])
            RowIndex(reference=tensor([[2]]), rollout=tensor([[0, 3]]))
        """
        members: dict[str, dict[int, list[int]]] = {stream: {} for stream in cls._fields}
        for row, membership in enumerate(memberships):
            if membership is not None:
                stream, prompt = membership
                members[stream].setdefault(prompt, []).append(row)
        prompts = sorted(set().union(*members.values()))
        tables = []
        for stream, groups in members.items():
            lines = [groups.get(prompt, []) for prompt in prompts]
            sizes = sorted({len(line) for line in lines})
            if len(sizes) > 1:
                raise ValueError(f"{stream}: expected groups of equal size, got sizes {sizes}")
            tables.append(torch.tensor(lines, dtype=torch.long).view(len(lines), *(sizes or [0])))
        return cls(*tables)

    def within(self, start: int, stop: int) -> RowIndex:
        """The prompts whose rows are all among the rows `start` to `stop - 1`, which keep their numbers."""
        rows = torch.cat(self, dim=1)
        kept = ((rows >= start) & (rows < stop)).all(1)
        return RowIndex(self.reference[kept], self.rollout[kept])


@dataclass(frozen=True, eq=False)
class RegularizationRows:
    """A trainer's R rows and the index of those in the regularization minibatch; every tensor has shape (R,).

    Rows outside the index may have any values.

    Attributes:
        index: which row answers which prompt.
        log_probs: sequence log-likelihoods in nats under the current policy.
        rewards: the verifier's verdicts, 0 or 1.
        behavior_log_probs: under the policy that sampled the rollouts; None when that is the current one.
        reference_log_probs: under the reference; for methods that compare with it on rollouts.
        tokens: lengths of the responses, at least 1, to divide each one's log-likelihood by; None for Eq. 13's sum.

    Raises:
        ValueError: tensors of other shapes than the log-likelihoods', or an indexed row without tokens.
    """

    index: RowIndex
    log_probs: Tensor
    rewards: Tensor
    behavior_log_probs: Tensor | None = None
    reference_log_probs: Tensor | None = None
    tokens: Tensor | None = None

    __repr__ = shapes

    def __post_init__(self) -> None:
        for name in ("rewards", "behavior_log_probs", "reference_log_probs", "tokens"):
            tensor = getattr(self, name)
            if tensor is not None and tensor.shape != self.log_probs.shape:
                raise ValueError(f"{name}: expected shape {tuple(self.log_probs.shape)}, got {tuple(tensor.shape)}")
        if self.tokens is not None:
            rows = torch.cat([table.flatten() for table in self.index])
            lacking = rows[~(self.tokens[rows] >= 1)]
            if len(lacking):
                row = int(lacking[0])
                raise ValueError(
                    f"tokens: expected lengths of at least 1, got {float(self.tokens[row]):g} in row {row}"
                )

    def groups(self, rows: Tensor, *columns: Tensor | None) -> ResponseGroups | None:
        """The groups of one stream.

        Args:
            rows: (N, G), row numbers.
            columns: (R,) each, log-likelihoods that `ResponseGroups` takes after the rewards.

        Returns:
            (N, G) each; None if there are no rows.

        Raises:
            ValueError: as `ResponseGroups` does.
        """
        tables = [None if column is None else column[rows] for column in columns]
        return ResponseGroups(self.log_probs[rows], self.rewards[rows], *tables) if rows.numel() else None


class SurrogateWeights(NamedTuple):
    """Signed weights on the sequence log-likelihoods; None for a stream that is not used.

    Attributes:
        reference: (N, G_ref), on cached responses.
        rollout: (N, G), on fresh ones.
    """

    reference: Tensor | None
    rollout: Tensor | None


def self_normalised(weights: Tensor) -> Tensor:
    """Weights over their group's sum; a group whose sum is zero gets zero weights (below Eq. 11).

    Args:
        weights: (N, G), >= 0.

    Returns:
        (N, G), in [0, 1]; a group's sum is 1 or 0.

    Examples:
        >>> self_normalised(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
        tensor([[0.2500, 0.7500],
                [0.0000, 0.0000]])
    """
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1)


def importance_ratios(groups: ResponseGroups, epsilon_is: float) -> Tensor:
    """Clipped sequence-level importance ratios rho~ (Eqs. 14-15), without gradient.

    Args:
        groups: (N, G) responses of the behaviour policy.
        epsilon_is: the clipping range, in (0, 1).

    Returns:
        (N, G), in [1 - epsilon_is, 1 + epsilon_is]; ones when on-policy.

    Examples:
        >>> groups = ResponseGroups(torch.tensor([[-1.0, -2.0]]), torch.tensor([[1, 0]]), torch.tensor([[-1.1, -5.0]]))
        >>> importance_ratios(groups, epsilon_is=0.2)
        tensor([[1.1052, 1.2000]])
    """
    log_probs = groups.log_probs.detach()
    if groups.behavior_log_probs is None:
        return torch.ones_like(log_probs)
    log_ratios = log_probs - groups.behavior_log_probs
    bounds = torch.log1p(torch.tensor([-epsilon_is, epsilon_is], dtype=torch.float64)).tolist()
    return log_ratios.clamp(*bounds).exp()


def reference_weights(groups: ResponseGroups) -> Tensor:
    """Alpha: uniform over the correct responses of a reference group (Eq. 11).

    Args:
        groups: (N, G) cached responses.

    Returns:
        (N, G), in [0, 1]; zeros for a group without a correct response.

    Examples:
        >>> groups = ResponseGroups(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([[1, 0, 1]]))
        >>> reference_weights(groups)
        tensor([[0.5000, 0.0000, 0.5000]])
    """
    return self_normalised(groups.rewards.to(groups.log_probs.dtype))


def rollout_weights(groups: ResponseGroups, epsilon_is: float) -> Tensor:
    """Gamma (Eq. 16), which is delta (Eq. 11) when the group was drawn from the current policy.

    Args:
        groups: (N, G) fresh responses.
        epsilon_is: the clipping range of the importance ratio, in (0, 1).

    Returns:
        (N, G), in [0, 1]; zeros for a group without a correct response.

    Examples:
        >>> groups = ResponseGroups(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([[1, 0, 1]]))
        >>> rollout_weights(groups, epsilon_is=0.2)
        tensor([[0.5000, 0.0000, 0.5000]])
    """
    return self_normalised(importance_ratios(groups, epsilon_is) * groups.rewards)


def score_function_weights(groups: ResponseGroups, costs: Tensor, epsilon_is: float) -> Tensor:
    """Weights whose surrogate has the expected gradient of E_pi[cost]; beyond the paper.

    The baseline of a response is the mean cost of its group's other responses, which leaves the estimator unbiased
    on-policy; a group of one has no baseline.

    Args:
        groups: (N, G) fresh responses.
        costs: (N, G), in nats, without gradient.
        epsilon_is: the clipping range of the importance ratio, in (0, 1).

    Returns:
        (N, G), in nats.

    Examples:
        >>> groups = ResponseGroups(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([[1, 0, 1]]))
        >>> score_function_weights(groups, torch.tensor([[0.0, 3.0, 6.0]]), epsilon_is=0.2)
        tensor([[-1.5000,  0.0000,  1.5000]])
    """
    size = costs.shape[-1]
    baseline = (costs.sum(-1, keepdim=True) - costs) / max(size - 1, 1)
    return importance_ratios(groups, epsilon_is) * (costs - baseline) / size


def surrogate_loss(
    weights: SurrogateWeights, reference: ResponseGroups | None, rollout: ResponseGroups | None
) -> Tensor:
    """The sampled surrogate (Eqs. 12 and 17). Its gradient, not its value, estimates the regularizer's.

    Args:
        weights: (N, G) for each stream, as `Method.weights` gives them.
        reference: (N, G_ref), cached groups; None where they have no weights.
        rollout: (N, G), fresh groups; None likewise.

    Returns:
        A scalar in nats: weighted log-likelihoods summed over responses, averaged over the N groups.

    Raises:
        ValueError: a weighted stream is missing.

    Examples:
        >>> groups = ResponseGroups(torch.tensor([[-1.0, -2.0]]), torch.tensor([[1, 0]]))
        >>> surrogate_loss(SurrogateWeights(-reference_weights(groups), None), groups, None)
        tensor(1.)
    """
    terms = []
    for name, weight, groups in zip(SurrogateWeights._fields, weights, (reference, rollout), strict=True):
        if weight is not None:
            terms.append(row_surrogate_loss(weight, required(groups, name).log_probs) / len(weight))
    return torch.stack(terms).sum()


def row_surrogate_loss(weights: Tensor, log_probs: Tensor) -> Tensor:
    """`surrogate_loss` of rows: the sum of sg(weight) * sequence log-likelihood (Eqs. 12 and 17).

    A sum over rows is exact under any split. So the simulator differentiates it stack by stack, and VeRL's actor
    micro-batch by micro-batch. The mean over groups is in the weights.

    Args:
        weights: (...), as `Method.row_weights` gives them; their gradient is cut.
        log_probs: (...), of the same shape, in nats.

    Returns:
        A scalar in nats, the sum over all rows.

    Examples:
        >>> row_surrogate_loss(torch.tensor([-1.0, 0.5]), torch.tensor([-3.0, -4.0]))
        tensor(1.)
    """
    return (weights.detach() * log_probs).sum()


def required(groups: ResponseGroups | None, stream: str) -> ResponseGroups:
    """The groups of a stream that a regularizer weights.

    Args:
        groups: (N, G), or None.
        stream: "reference" or "rollout", for the message.

    Returns:
        The groups.

    Raises:
        ValueError: they are missing; the message names the stream.

    Examples:
        >>> required(ResponseGroups(torch.tensor([[-1.0]]), torch.tensor([[1]])), "rollout").log_probs
        tensor([[-1.]])
    """
    if groups is None:
        raise ValueError(f"{stream}: this regularizer needs {stream} groups")
    return groups
