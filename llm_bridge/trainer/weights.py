"""The group mathematics of the LLM trainer: whole groups of responses become one number per row.

What runs inside VeRL's micro-batches is then `sum(weight * sequence log-likelihood)`, exact under any split.

Assumption beyond the paper: a response's log-likelihood in the regularizer is the sum over its tokens, as Eq. 13 has
it, while the GRPO loss beside it is a mean over them (Eq. 4). Per token the regularizer thus weighs more by a factor of
the length, thousands for reasoning models; a mean in both would be an effective coefficient of beta / length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights
from cokl.methods import Method
from llm_bridge.trainer.streams import Minibatch, uid_of

LENGTHS = ("token-sum", "token-mean", "group-mean")
"""Eq. 13's sum of a response's token log-probabilities, their mean, or the sum over the group's mean length."""


@dataclass(frozen=True, eq=False)
class RegularizationRows:
    """R responses of a regularization minibatch, in any order; every tensor has shape (R,).

    streams: "reference" for cached responses, "rollout" for fresh ones. groups: which prompt a row belongs to; both
    streams number the same prompts alike. log_probs: sequence log-likelihoods in nats under the current policy.
    rewards: the verifier's verdicts, 0 or 1. behavior_log_probs: under the policy that sampled the rollouts; None when
    that is the current one. reference_log_probs: under the reference, of the rollouts; None where no method asks.
    """

    streams: Sequence[str]
    groups: Sequence[int]
    log_probs: Tensor
    rewards: Tensor
    behavior_log_probs: Tensor | None = None
    reference_log_probs: Tensor | None = None


def row_weights(method: Method, beta: float, surrogate: SurrogateConfig, rows: RegularizationRows) -> Tensor:
    """Weights (R,) with all coefficients and the mean over groups in: minimise `(weights * log_probs).sum()`.

    Eqs. 11, 16 and 20 through `Method.weights`. Raises ValueError for groups of unequal size, and where a stream that
    the method weights has no rows.
    """
    places = {stream: _places(rows, stream) for stream in SurrogateWeights._fields}
    groups = {stream: _groups(rows, stream, place) for stream, place in places.items()}
    weights = torch.zeros_like(rows.log_probs)
    for stream, weight in method.weights(groups["reference"], groups["rollout"], beta, surrogate)._asdict().items():
        if weight is not None:
            weights[places[stream]] = weight / len(weight)
    return weights


@dataclass(frozen=True, eq=False)
class GroupWeights:
    """The weights of a step's rows, by VeRL's keys, as often as the policy moves.

    length: what a weight's log-likelihood is, `LENGTHS`. rewards, behavior_log_probs, tokens: of every added row, the
    sequence log-likelihoods being those at which the fresh ones were sampled. reference_log_probs: of the fresh rows;
    empty where no method asks.
    """

    method: Method
    beta: float
    surrogate: SurrogateConfig
    length: str
    minibatch: Minibatch
    tokens: Mapping[str, float]
    rewards: Mapping[str, float]
    behavior_log_probs: Mapping[str, float]
    reference_log_probs: Mapping[str, float]

    def weights(self, keys: Sequence[str], log_probs: Mapping[str, float] | None = None) -> dict[str, float]:
        """Of the whole groups among `keys`, which are averaged over; a group that lost a row has no part in the step.

        log_probs: sequence log-likelihoods under the current policy; None while that is the one that sampled.
        """
        whole = self.minibatch.whole_groups(keys)
        if not whole:
            return {}
        places = [self.minibatch.places[uid_of(key)] for key in whole]

        def column(values: Mapping[str, float]) -> Tensor:
            return torch.tensor([values[key] for key in whole], dtype=torch.float64)

        compared = dict.fromkeys(whole, 0.0) | dict(self.reference_log_probs)  # cached rows are not compared
        rows = RegularizationRows(
            streams=[place.stream for place in places],
            groups=[place.prompt for place in places],
            log_probs=column(self.behavior_log_probs if log_probs is None else log_probs),
            rewards=column(self.rewards),
            behavior_log_probs=None if log_probs is None else column(self.behavior_log_probs),
            reference_log_probs=column(compared) if self.reference_log_probs else None,
        )
        weights = row_weights(self.method, self.beta, self.surrogate, rows) / self._divisors(rows, column(self.tokens))
        return dict(zip(whole, weights.tolist(), strict=True))

    def _divisors(self, rows: RegularizationRows, tokens: Tensor) -> Tensor:
        """(R,): what a row's log-likelihood is divided by, in tokens."""
        if self.length == "token-sum":
            return torch.ones_like(tokens)
        if self.length == "group-mean":
            tokens = tokens.clone()
            for stream in set(rows.streams):
                for place in _places(rows, stream):
                    tokens[place] = tokens[place].mean()
        return tokens


def _places(rows: RegularizationRows, stream: str) -> Tensor:
    """(N, G): the rows of a stream, one group after the other. Raises ValueError for groups of unequal size."""
    members: dict[int, list[int]] = {}
    for row, (tag, group) in enumerate(zip(rows.streams, rows.groups, strict=True)):
        if tag == stream:
            members.setdefault(group, []).append(row)
    sizes = sorted({len(group) for group in members.values()})
    if len(sizes) > 1:
        raise ValueError(f"{stream}: expected groups of equal size, got sizes {sizes}")
    return torch.tensor([members[group] for group in sorted(members)], dtype=torch.long)


def _groups(rows: RegularizationRows, stream: str, places: Tensor) -> ResponseGroups | None:
    if not len(places):
        return None
    behavior, compared = (rows.behavior_log_probs, rows.reference_log_probs) if stream == "rollout" else (None, None)
    return ResponseGroups(
        rows.log_probs[places],
        rows.rewards[places],
        None if behavior is None else behavior[places],
        None if compared is None else compared[places],
    )
