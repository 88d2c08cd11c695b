"""Weights as advantages: what makes VeRL's own policy loss differentiate the regularizer.

At a ratio of 1, VeRL's loss of a token has the gradient -A * share * grad log pi, where `share` is what the aggregation
gives the token. An added row of weight w (`Method.row_weights`) with A = -w / share has the gradient
w * grad log-likelihood, whatever the aggregation. A ratio of 1 is not clipped, for either sign of A.

Added rows do not count among VeRL's tokens (their `loss_mask` is 0), but among the rows that its means over sequences
divide by; so the advantages of RL rows are scaled up there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SEQUENCE_MODES = ("seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")


@dataclass(frozen=True)
class Aggregation:
    """How VeRL averages the loss of one optimizer step.

    mode: VeRL's `loss_agg_mode`. rows: that means over sequences divide by, padding included. rl_rows: that they would
    divide by without the added ones. scale: `loss_scale_factor` of seq-mean-token-sum-norm.
    """

    mode: str
    rows: int
    rl_rows: int
    scale: float = 1.0

    @property
    def rl_factor(self) -> float:
        """By which RL advantages are multiplied for the loss that VeRL has without added rows."""
        return self.rows / self.rl_rows if self.mode in SEQUENCE_MODES else 1.0

    def shares(self, tokens: Tensor, added: Tensor) -> Tensor:
        """(R,): what the aggregation multiplies the loss of each of a row's tokens by.

        tokens: (R,), how many of a row's tokens the policy wrote. added: (R,), True where a row is the regularizer's
        alone.
        """
        if self.mode == "token-mean":
            return torch.ones_like(tokens) / tokens[~added].sum()
        if self.mode == "token-sum":
            return torch.ones_like(tokens)
        if self.mode == "seq-mean-token-mean":
            return 1 / (self.rows * tokens.clamp(min=1))
        return torch.ones_like(tokens) / (self.rows * (self.scale if self.mode == "seq-mean-token-sum-norm" else 1))


def regularized_advantages(
    own: Sequence[Tensor],
    masks: Sequence[Tensor],
    weights: Tensor,
    added: Tensor,
    aggregation: Aggregation,
    factors: Sequence[Tensor],
) -> list[Tensor]:
    """The advantages, (T,) of each of R rows, under which VeRL's loss has the RL gradient plus the regularizer's.

    own: (T,) each, VeRL's advantages; 0 on added rows. masks: (T,) each, 1 on the tokens that the policy wrote.
    weights, added: (R,), the weights on sequence log-likelihoods, and which rows are the regularizer's alone.
    factors: (T,) each, > 0 where the policy wrote, by which VeRL multiplies the loss of each token (`rollout_is`).
    """
    tokens = torch.stack([mask.sum() for mask in masks]).double()
    needed = weights.double() / aggregation.shares(tokens, added)
    return [
        ((advantage.double() * aggregation.rl_factor - token / factor.double().where(mask > 0, 1.0)) * mask).float()
        for advantage, mask, token, factor in zip(own, masks, needed, factors, strict=True)
    ]
