"""The weights of a step's rows, by VeRL's keys; the mathematics is `Method.row_weights`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cokl.groups import RegularizationRows, SurrogateConfig
from cokl.methods import Method
from llm_bridge.trainer.streams import Minibatch, uid_of


@dataclass(frozen=True, eq=False)
class GroupWeights:
    """The weights of a step's rows, as often as the policy moves.

    length: what of a response is weighted, one of `cokl.groups.LENGTHS`. tokens, rewards, behavior_log_probs: of every
    added row, the sequence log-likelihoods being those at which the fresh ones were sampled. reference_log_probs: of
    the fresh rows; empty where no method asks.
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

    def rows(
        self, keys: Sequence[str], log_probs: Mapping[str, float] | None = None
    ) -> tuple[list[str], RegularizationRows]:
        """The keys of the whole groups among `keys`, and their rows; a group that lost a row has no part in the step.

        log_probs: sequence log-likelihoods under the current policy; None while that is the one that sampled.
        """
        whole = self.minibatch.whole_groups(keys)
        places = [self.minibatch.places[uid_of(key)] for key in whole]
        compared = {key: self.minibatch.cached.get(uid_of(key), math.nan) for key in whole} | dict(
            self.reference_log_probs
        )

        def column(values: Mapping[str, float]) -> Tensor:
            return torch.tensor([values[key] for key in whole], dtype=torch.float64)

        return whole, RegularizationRows(
            streams=[place.stream for place in places],
            groups=[place.prompt for place in places],
            log_probs=column(self.behavior_log_probs if log_probs is None else log_probs),
            rewards=column(self.rewards),
            behavior_log_probs=None if log_probs is None else column(self.behavior_log_probs),
            reference_log_probs=column(compared),
            tokens=column(self.tokens),
        )

    def weights(self, keys: Sequence[str], log_probs: Mapping[str, float] | None = None) -> dict[str, float]:
        """Of the rows of the whole groups among `keys`, which are averaged over; log_probs as in `rows`."""
        whole, rows = self.rows(keys, log_probs)
        weights = self.method.row_weights(rows, self.beta, self.surrogate, self.length) if whole else torch.empty(0)
        return dict(zip(whole, weights.tolist(), strict=True))
