"""The actor's loss: VeRL's own on the RL rows plus `cokl.groups.row_surrogate_loss` of the regularized rows.

A row may be in both parts: an RL row whose prompt is regularized has an advantage and a weight. The weights carry all
that a method is (`Method.row_weights`), so that nothing here knows a method.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.config import ActorConfig
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding

from cokl.groups import row_surrogate_loss

WEIGHT = "cokl_weight"
"""(R, 1): a row's weight; 0 on RL rows whose prompt is not regularized."""
ADDED = "cokl_added"
"""(R, 1): 1 on rows that are there for the regularizer alone, 0 on RL rows."""
SQUARED_GRADIENTS = ("cokl/squared_gradient_rl", "cokl/squared_gradient_kl")
"""Metrics: squared norms of the gradient of either part of the loss with respect to the tokens' log-probabilities."""
RL_BATCH_SIZE = "cokl_rl_batch_size"
"""RL rows of a mini-batch over all ranks, which VeRL's seq-mean modes divide by."""


def joint_loss(
    verl_config: ActorConfig, model_output: dict[str, Tensor], data: TensorDict, dp_group: Any = None
) -> tuple[Tensor, dict[str, Any]]:
    """Scalar loss of a micro-batch, and its metrics, as VeRL's engine asks for them.

    The engine adds micro-batches up and averages ranks, so the regularization sum is multiplied by the number of
    ranks. VeRL's part is computed on a copy in which the added rows have no response tokens and do not count;
    `loss_mask`, whose total is its token count, must be zero on them already. VeRL's averages over a micro-batch are
    weighted by its share of RL tokens, so that the logged ones are averages over all RL tokens. Squared gradients add
    up over tokens, and so over micro-batches and ranks; a rank's are larger by the number of ranks.
    """
    added = _column(data, ADDED).bool()
    response_mask = _padded(data["response_mask"]).bool()
    rl_mask = response_mask & ~added[:, None]
    rl_data = data.copy()
    rl_data["response_mask"] = rl_mask
    tu.assign_non_tensor(rl_data, global_batch_size=data[RL_BATCH_SIZE])
    loss, metrics = ppo_loss(verl_config, model_output, rl_data, dp_group)

    share = rl_mask.sum().item() / data["batch_num_tokens"] * data["dp_size"]
    for name, metric in metrics.items():
        if isinstance(metric, Metric) and metric.aggregation is AggregationType.MEAN:
            metrics[name] = Metric(AggregationType.SUM, metric.aggregate() * share)

    log_probs = no_padding_2_padding(model_output["log_probs"], data)
    log_likelihoods = (log_probs * response_mask).sum(-1)
    surrogate = row_surrogate_loss(_column(data, WEIGHT), log_likelihoods) * data["dp_size"]
    metrics["cokl/loss"] = Metric(AggregationType.SUM, surrogate)
    for name, part in zip(SQUARED_GRADIENTS, (loss, surrogate), strict=True):
        squared = _squared_gradient(part, model_output["log_probs"]) / data["dp_size"]
        metrics[name] = Metric(AggregationType.SUM, squared)
    return loss + surrogate, metrics


def _squared_gradient(loss: Tensor, log_probs: Tensor) -> float:
    """Squared norm of a loss's gradient with respect to log-probabilities; 0 without one."""
    if not loss.requires_grad:
        return 0.0
    (gradient,) = torch.autograd.grad(loss, log_probs, retain_graph=True, materialize_grads=True)
    return float((gradient.values() if gradient.is_nested else gradient).square().sum())


def _column(data: TensorDict, name: str) -> Tensor:
    """(R,): one number per row, which VeRL's queue returns as a jagged column."""
    column = data[name]
    return (column.values() if column.is_nested else column).reshape(-1)


def _padded(rows: Tensor) -> Tensor:
    return torch.nested.to_padded_tensor(rows, 0) if rows.is_nested else rows
