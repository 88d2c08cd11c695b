"""Groups of sampled responses and the self-normalised weights over them (Eqs. 11-17).

Shapes: `N` prompt groups of `G` responses each. Group weights are computed over whole groups and carry no gradient, so
a loss made of them, `sum(weight * sequence log-likelihood)`, is exact under any split into micro-batches.

What the paper leaves open in the surrogates is in the fields of `SurrogateConfig`.

Assumption beyond the paper: a response's log-likelihood in the regularizer is the sum over its tokens, as Eq. 13 has
it, while the GRPO loss beside it is a mean over them (Eq. 4). Per token the regularizer thus weighs more by a factor of
the length, thousands for reasoning models; a mean in both would be an effective coefficient of beta / length. With
means CoKL no longer leaves the correctness mass free where correct answers differ in length: the claim
`token-means-do-not-leave-mass-free` measures it. In the estimate of the conditional KL a group's probability of being
correct has half an answer of either kind added, so that a group without a correct one has a finite logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cokl.surrogate_config import SurrogateConfig as SurrogateConfig  # noqa: PLC0414  re-exported

LENGTHS = ("token-sum", "token-mean", "group-mean")
"""Eq. 13's sum of a response's token log-probabilities, their mean, or the sum over the group's mean length."""


@dataclass(frozen=True, eq=False)
class ResponseGroups:
    """N groups of G responses to one prompt each, as sequence log-likelihoods in nats (Eq. 13).

    log_probs: (N, G), under the current policy; may carry a gradient, which only `surrogate_loss` uses.
    rewards: (N, G), the verifier's verdicts, 0 or 1.
    behavior_log_probs: (N, G), under the policy that sampled the group; None when that is the current policy.
    reference_log_probs: (N, G), under the reference; needed by the regularizers that compare with it on rollouts.
    Raises ValueError for rewards outside {0, 1}, shapes that differ, or log-likelihoods that are not finite.
    """

    log_probs: Tensor
    rewards: Tensor
    behavior_log_probs: Tensor | None = None
    reference_log_probs: Tensor | None = None

    def __post_init__(self) -> None:
        if self.log_probs.dim() != 2:
            raise ValueError(f"log_probs: expected shape (N, G), got {tuple(self.log_probs.shape)}")
        for name in ("rewards", "behavior_log_probs", "reference_log_probs"):
            tensor = getattr(self, name)
            if tensor is not None and tensor.shape != self.log_probs.shape:
                raise ValueError(f"{name}: expected shape {tuple(self.log_probs.shape)}, got {tuple(tensor.shape)}")
        for name in ("log_probs", "behavior_log_probs", "reference_log_probs"):
            tensor = getattr(self, name)
            if tensor is not None and not bool(tensor.isfinite().all()):
                raise ValueError(f"{name}: expected finite log-likelihoods; a sampled response has probability > 0")
        if not bool(((self.rewards == 0) | (self.rewards == 1)).all()):
            raise ValueError("rewards: expected verifier verdicts, 0 or 1; threshold continuous scores first")

    def reference_log_ratios(self) -> Tensor:
        """(N, G): log pi - log pi_ref of each response. Raises ValueError without reference log-likelihoods."""
        if self.reference_log_probs is None:
            raise ValueError("reference_log_probs: this regularizer needs the rollouts' log-likelihoods under pi_ref")
        return self.log_probs.detach() - self.reference_log_probs


class RowIndex(NamedTuple):
    """Which of R rows answer which of N prompts: row numbers, 0 to R - 1, one line per prompt.

    reference: (N, G_ref), the cached responses. rollout: (N, G), the fresh ones. A line is the same prompt in both
    streams, and a stream without rows has shape (N, 0). A row need not be in either.
    """

    reference: Tensor
    rollout: Tensor

    @classmethod
    def of(cls, places: Iterable[tuple[str, int] | None]) -> RowIndex:
        """From the stream and the prompt's number of each row; None for a row outside the regularization minibatch.

        Raises ValueError for groups of unequal size.
        """
        members: dict[str, dict[int, list[int]]] = {stream: {} for stream in cls._fields}
        for row, place in enumerate(places):
            if place is not None:
                members[place[0]].setdefault(place[1], []).append(row)
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
    """A trainer's R rows, of which the index names those of the regularization minibatch; every tensor has shape (R,).

    index: which row answers which prompt. log_probs: sequence log-likelihoods in nats under the current policy.
    rewards: the verifier's verdicts, 0 or 1. behavior_log_probs: under the policy that sampled the rollouts; None when
    that is the current one. reference_log_probs: under the reference, of the rollouts for methods that compare with it
    and of the cached ones for `conditional_kl`; other rows may have NaN. tokens: lengths, which the means divide by.
    Rows outside the index may have any values.
    """

    index: RowIndex
    log_probs: Tensor
    rewards: Tensor
    behavior_log_probs: Tensor | None = None
    reference_log_probs: Tensor | None = None
    tokens: Tensor | None = None

    def groups(self, rows: Tensor, *columns: Tensor | None) -> ResponseGroups | None:
        """Those of a stream, whose row numbers are (N, G); None if it has no rows.

        columns: (R,), log-likelihoods that `ResponseGroups` takes after the rewards. Raises ValueError as it does.
        """
        tables = [None if column is None else column[rows] for column in columns]
        return ResponseGroups(self.log_probs[rows], self.rewards[rows], *tables) if rows.numel() else None

    def divisors(self, rows: Tensor, length: str) -> Tensor:
        """What the log-likelihoods of these rows, (N, G), are divided by: 1, or tokens, (N, G) or (N, 1).

        length: one of `LENGTHS`. Raises ValueError for a mean without `tokens`.
        """
        if length == "token-sum":
            return torch.ones(())
        if self.tokens is None:
            raise ValueError(f"tokens: expected the responses' lengths, which {length} divides by")
        tokens = self.tokens[rows]
        return tokens.mean(-1, keepdim=True) if length == "group-mean" else tokens


class SurrogateWeights(NamedTuple):
    """Signed weights on the sequence log-likelihoods, (N, G) each; None for a stream that is not used."""

    reference: Tensor | None
    rollout: Tensor | None

    @classmethod
    def total(cls, parts: Iterable[tuple[float | Tensor, SurrogateWeights]]) -> SurrogateWeights:
        """The sum of coefficient times weights; a stream that no part uses stays None.

        parts: a coefficient that broadcasts against (N, G), and its weights, (N, G) each.
        """
        scaled = [[None if weight is None else scale * weight for weight in weights] for scale, weights in parts]
        present = [[weight for weight in stream if weight is not None] for stream in zip(*scaled, strict=True)]
        return cls(*(torch.stack(stream).sum(0) if stream else None for stream in present))


def self_normalised(weights: Tensor) -> Tensor:
    """`weights` (N, G), >= 0, over their group sum; a group whose sum is zero gets zero weights (below Eq. 11)."""
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1)


def importance_ratios(groups: ResponseGroups, epsilon_is: float) -> Tensor:
    """(N, G): clipped sequence-level importance ratios rho~ (Eqs. 14-15), without gradient; ones when on-policy."""
    log_probs = groups.log_probs.detach()
    if groups.behavior_log_probs is None:
        return torch.ones_like(log_probs)
    log_ratios = log_probs - groups.behavior_log_probs
    bounds = torch.log1p(torch.tensor([-epsilon_is, epsilon_is], dtype=torch.float64)).tolist()
    return log_ratios.clamp(*bounds).exp()


def reference_weights(groups: ResponseGroups) -> Tensor:
    """(N, G): alpha, uniform over the correct responses of a reference group (Eq. 11)."""
    return self_normalised(groups.rewards.to(groups.log_probs.dtype))


def rollout_weights(groups: ResponseGroups, epsilon_is: float) -> Tensor:
    """(N, G): gamma (Eq. 16), which is delta (Eq. 11) when the group was drawn from the current policy."""
    return self_normalised(importance_ratios(groups, epsilon_is) * groups.rewards)


def score_function_weights(groups: ResponseGroups, costs: Tensor, epsilon_is: float) -> Tensor:
    """(N, G): weights whose expectation is the gradient of E_pi[cost], with a leave-one-out baseline.

    costs: (N, G), without gradient. The baseline of a response is the mean cost of its group's other responses, which
    leaves the estimator unbiased on-policy; a group of one has no baseline.
    """
    size = costs.shape[-1]
    baseline = (costs.sum(-1, keepdim=True) - costs) / max(size - 1, 1)
    return importance_ratios(groups, epsilon_is) * (costs - baseline) / size


def surrogate_loss(
    weights: SurrogateWeights, reference: ResponseGroups | None, rollout: ResponseGroups | None
) -> Tensor:
    """Scalar surrogate (Eqs. 12 and 17): weighted log-likelihoods summed over responses, averaged over the N groups.

    Its gradient, not its value, estimates the regularizer's. Raises ValueError if a weighted stream is missing.
    """
    terms = []
    for name, weight, groups in zip(SurrogateWeights._fields, weights, (reference, rollout), strict=True):
        if weight is not None:
            terms.append(row_surrogate_loss(weight, required(groups, name).log_probs) / len(weight))
    return torch.stack(terms).sum()


def row_surrogate_loss(weights: Tensor, log_probs: Tensor) -> Tensor:
    """`surrogate_loss` of rows, a scalar: the sum of sg(weight) * sequence log-likelihood (Eqs. 12 and 17).

    weights, log_probs: of one shape, any. A sum over rows is exact under any split, so this is what the simulator
    differentiates stack by stack and VeRL's actor micro-batch by micro-batch; a mean over groups is in the weights.
    """
    return (weights.detach() * log_probs).sum()


def conditional_kl(rows: RegularizationRows) -> float:
    """KL(reference | correct || policy | correct) in nats, estimated; the mean of the prompts that have a correct
    cached response. NaN without one, or without rollouts.

    Of the cached correct responses, log reference - log policy on average, and the logarithm of the policy's fraction
    of correct fresh ones over that of the cached ones. Raises ValueError without `rows.reference_log_probs`.
    """
    if rows.reference_log_probs is None:
        raise ValueError("reference_log_probs: expected the cached responses' log-likelihoods under the reference")
    cached, fresh = rows.index
    if not cached.numel() or not fresh.numel():
        return math.nan
    correct = rows.rewards[cached]
    gap = ((rows.reference_log_probs - rows.log_probs)[cached] * correct).sum(-1) / correct.sum(-1)
    policy, reference = ((hits.sum(-1) + 0.5) / (hits.shape[-1] + 1) for hits in (rows.rewards[fresh], correct))
    return float((gap + (policy / reference).log()).nanmean())


def required(groups: ResponseGroups | None, stream: str) -> ResponseGroups:
    """`groups`, which a regularizer weights. Raises ValueError naming the stream if they are missing."""
    if groups is None:
        raise ValueError(f"{stream}: this regularizer needs {stream} groups")
    return groups
