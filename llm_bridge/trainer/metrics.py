"""What the log shows of a regularizer, and VeRL's own metrics without the added rows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
import torch
from torch import Tensor

from cokl.groups import RegularizationRows
from llm_bridge.equal_rows import squared_gradient
from llm_bridge.trainer.advantages import Aggregation
from llm_bridge.trainer.rows import StepRows


def row_metrics(rows: StepRows, groups: RegularizationRows) -> dict[str, float]:
    """Of a step's complete groups.

    `cokl/kl_rows` counts their rows, and `cokl/zero_correct` is the fraction of fresh ones without a correct response
    (E.4). `cokl/not_regularized` is the fraction of training prompts that are not regularized.
    """
    logged = {"cokl/kl_rows": float(sum(table.numel() for table in groups.index))}
    if rows.training:
        logged["cokl/not_regularized"] = float(np.mean([not known for known in rows.training.values()]))
    if (fresh := groups.rewards[groups.index.rollout]).numel():
        logged["cokl/reward_mean"] = float(fresh.mean())
        logged["cokl/zero_correct"] = 1 - float(fresh.amax(1).mean())
    return logged


def gradient_share(
    own: Sequence[Tensor],
    masks: Sequence[Tensor],
    weights: Tensor,
    added: Tensor,
    sequences: Sequence[Hashable],
    aggregation: Aggregation,
) -> float:
    """The regularizer's share, 0 to 1, of the squared gradient of both parts of the loss; NaN where both are 0.

    Squared as `squared_gradient` says, at a ratio of 1.

    own: (T,) each, VeRL's advantages; 0 on added rows. masks: (T,) each, 1 on the tokens that the policy wrote.
    weights, added: (R,), the weights on sequence log-likelihoods, and which rows are the regularizer's alone.
    sequences: R, equal where prompt and response have the same tokens.
    """
    tokens = torch.stack([mask.sum() for mask in masks]).double()
    shares = aggregation.shares(tokens, added) * aggregation.rl_factor
    of_rl = [share * row.double() * mask for share, row, mask in zip(shares, own, masks, strict=True)]
    added_up = [weight * mask.double() for weight, mask in zip(weights.double(), masks, strict=True)]
    rl, regularizer = (squared_gradient(zip(sequences, part, strict=True)) for part in (of_rl, added_up))
    return regularizer / (rl + regularizer) if rl + regularizer else math.nan


def without_added(metrics: dict[str, float], counted: float, loss: float, tokens: Tensor, added: Tensor) -> None:
    """Correct what VeRL's update has logged for the added rows.

    counted: what the regularizer adds to VeRL's loss; where that has ratios, a row's weight for each of its tokens.
    loss: the regularizer's, in its place. VeRL's averages over tokens count the added ones, whose ratio is 1; they are
    means over micro-batches, so that scaling them up is exact for equal ones alone, and where all are 0, as with one
    optimizer step per rollout.
    """
    for name, instead in (("actor/pg_loss", 0.0), ("actor/loss", loss)):
        if name in metrics:
            metrics[name] += instead - counted
    for name in ("actor/pg_clipfrac", "actor/pg_clipfrac_lower", "actor/ppo_kl"):
        if name in metrics:
            metrics[name] *= float(tokens.sum() / tokens[~added].sum())
