"""The weights of a step's rows by VeRL's keys, for `benchmarks.llm_overhead`; the trainer has them as tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cokl.groups import RegularizationRows, SurrogateConfig
from cokl.methods import Method
from llm_bridge.trainer.streams import Minibatch


@dataclass(frozen=True, eq=False)
class GroupWeights:
    """tokens, rewards, behavior_log_probs: of every row, by key; as in `RegularizationRows`, like the other fields."""

    method: Method
    beta: float
    surrogate: SurrogateConfig
    length: str
    minibatch: Minibatch
    tokens: Mapping[str, float]
    rewards: Mapping[str, float]
    behavior_log_probs: Mapping[str, float]
    reference_log_probs: Mapping[str, float]

    def weights(self, keys: Sequence[str]) -> dict[str, float]:
        """Of these rows while the policy is the one that sampled them; no method that compares with the reference."""

        def column(values: Mapping[str, float]) -> Tensor:
            return torch.tensor([values[key] for key in keys], dtype=torch.float64)

        rows = RegularizationRows(
            self.minibatch.index(keys),
            column(self.behavior_log_probs),
            column(self.rewards),
            tokens=column(self.tokens),
        )
        weights = self.method.row_weights(rows, self.beta, self.surrogate, self.length)
        return dict(zip(keys, weights.tolist(), strict=True))
