"""VeRL's loss of an optimizer step, whose terms beside the policy's see the RL rows alone.

The regularizer needs no term of its own: it is in the advantages (`llm_bridge.trainer.advantages`). VeRL averages the
policy's entropy and its KL to the reference over the tokens of `response_mask`, and divides means over sequences by all
rows. Added rows are among both. Here these two terms are averaged over `loss_mask`, in which added rows have no token,
and divided by the RL rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

from tensordict import TensorDict
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss, kl_penalty
from verl.utils.metric import AggregationType, Metric
from verl.workers.config import ActorConfig
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding


def loss_of_rl_rows(config: ActorConfig, rl_rows: int) -> Callable[..., tuple[Tensor, dict[str, Any]]]:
    """What VeRL's workers call with a micro-batch. config: VeRL's of the actor. rl_rows: of one optimizer step."""
    policy = copy.copy(config)
    object.__setattr__(policy, "use_kl_loss", False)  # which VeRL has frozen
    return partial(_loss, config, policy, rl_rows)


def _loss(
    config: ActorConfig,
    policy: ActorConfig,
    rl_rows: int,
    model_output: dict[str, Any],
    data: TensorDict,
    dp_group: Any = None,
) -> tuple[Tensor, dict[str, Any]]:
    """A micro-batch's part of the loss, a scalar, and what VeRL logs of it.

    policy: `config` without a KL term. model_output: log-probabilities and, if asked for, entropies of all tokens.
    data: the rows' columns; `loss_mask` and `ref_log_prob` are of the response's tokens.
    """
    entropy = model_output.get("entropy")
    without = {name: value for name, value in model_output.items() if name != "entropy"}
    loss, metrics = ppo_loss(policy, without, data, dp_group)
    columns = data.select("loss_mask", *(["ref_log_prob"] if config.use_kl_loss else [])).to_padded_tensor()
    average = partial(
        agg_loss,
        loss_mask=columns["loss_mask"].bool(),
        loss_agg_mode=config.loss_agg_mode,
        **policy.global_batch_info | {"global_batch_size": rl_rows},
    )
    if entropy is not None:
        mean_entropy = average(no_padding_2_padding(entropy, data))
        loss = loss - config.entropy_coeff * mean_entropy
        metrics["actor/entropy_loss"] = Metric(value=mean_entropy, aggregation=AggregationType.SUM)
    if config.use_kl_loss:
        log_probs = no_padding_2_padding(model_output["log_probs"], data)
        kl = average(kl_penalty(log_probs, columns["ref_log_prob"], config.kl_loss_type))
        loss = loss + config.kl_loss_coef * kl
        metrics["kl_loss"] = Metric(value=kl, aggregation=AggregationType.SUM)
        metrics["kl_coef"] = config.kl_loss_coef
    return loss, metrics
