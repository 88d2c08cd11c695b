"""What the log shows of a regularizer, and VeRL's own metrics without the added rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cokl.groups import RegularizationRows
from llm_bridge.trainer.advantages import Aggregation
from llm_bridge.trainer.rows import StepRows


def row_metrics(step: StepRows, rows: RegularizationRows) -> dict[str, float]:
    """Of a step's complete groups.

    `cokl/kl_rows` counts their rows, and `cokl/zero_correct` is the fraction of fresh ones without a correct response
    (E.4). `cokl/not_regularized` is the fraction of training prompts that are not regularized.
    """
    logged = {"cokl/kl_rows": float(sum(table.numel() for table in rows.index))}
    if step.training:
        logged["cokl/not_regularized"] = float(np.mean([not known for known in step.training.values()]))
    if (fresh := rows.rewards[rows.index.rollout]).numel():
        logged["cokl/reward_mean"] = float(fresh.mean())
        logged["cokl/zero_correct"] = 1 - float(fresh.amax(1).mean())
    return logged


def gradient_share(
    own: Sequence[Tensor], masks: Sequence[Tensor], weights: Tensor, added: Tensor, aggregation: Aggregation
) -> float:
    """The regularizer's share, 0 to 1, of the squared gradient of both parts of the loss with respect to the tokens'
    log-probabilities, at a ratio of 1; NaN where both are 0. Arguments: as `regularized_advantages` has them.
    """
    tokens = torch.stack([mask.sum() for mask in masks]).double()
    squared = torch.stack([(row.double() * mask).square().sum() for row, mask in zip(own, masks, strict=True)])
    shares = aggregation.shares(tokens, added)
    rl = float((squared * (shares * aggregation.rl_factor).square()).sum())
    kl = float((weights.double().square() * tokens).sum())
    return kl / (rl + kl) if rl + kl else math.nan


def without_added(
    metrics: dict[str, float], counted: float, loss: float, tokens: Tensor, added: Tensor, rl_factor: float
) -> None:
    """Correct what VeRL's update has logged for the added rows.

    counted: what the regularizer adds to VeRL's loss; where that has ratios, a row's weight for each of its tokens.
    loss: the regularizer's, in its place. VeRL's averages over tokens count the added ones, whose ratio is 1 and whose
    KL is 0; they are means over micro-batches, so that scaling them up is exact for equal ones alone, and where all are
    0, as with one optimizer step per rollout. rl_factor: the aggregation's.
    """
    for name, instead in (("actor/pg_loss", 0.0), ("actor/loss", loss)):
        if name in metrics:
            metrics[name] += instead - counted
    for name in ("pg_clipfrac", "pg_clipfrac_lower", "ppo_kl", "kl_loss"):
        if f"actor/{name}" in metrics:
            metrics[f"actor/{name}"] *= rl_factor if name == "kl_loss" else float(tokens.sum() / tokens[~added].sum())
    metrics.pop("actor/entropy_loss", None)  # of all rows; VeRL's actor/entropy is of the RL rows
