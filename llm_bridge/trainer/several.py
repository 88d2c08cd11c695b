"""Several optimizer steps per rollout: whole groups in each, and the policy of the moment (Eq. 15).

Before each step after the first, the added rows' log-probabilities are taken anew: the weights gamma are those of the
moved policy, and as the added rows' old log-probabilities they keep VeRL's ratio at 1. The RL rows' old ones stay
those of the policy that sampled.

Two things are refused with several steps (`llm_bridge.trainer.checks.SEVERAL`). VeRL would advance a learning-rate
schedule once per optimizer step instead of once per rollout. And the rows of a training prompt, which are RL rows and
regularized ones at once, would need two ratios: that to the policy that sampled, and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import transfer_queue as tq
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.workers.utils.padding import response_from_nested

from llm_bridge.trainer.rows import StepRows, uid_of


def mini_batches(rows: StepRows, keys: Sequence[str], count: int) -> list[list[str]]:
    """`keys` in `count` parts: equal shares of RL prompts and of regularized ones, each prompt's rows together."""
    ours = sorted({uid_of(key) for key in keys if not rows.added(key)})
    homes = {uid: part for part, uids in enumerate(np.array_split(ours, count)) for uid in uids.tolist()}
    parts: list[list[str]] = [[] for _ in range(count)]
    for key in sorted(keys, key=lambda key: (rows.added(key), key)):
        member = rows.member(key)
        parts[member.prompt % count if member else homes[uid_of(key)]].append(key)
    return parts


def current_log_probs(
    batch: KVBatchMeta,
    old: Sequence[Tensor],
    added: Sequence[bool],
    multiple: int,
    compute: Callable[[KVBatchMeta], Any],
) -> list[Tensor]:
    """(T,) each: `old` with the added rows' log-probabilities, in nats per token, under the current policy.

    added: which rows of the batch they are. multiple: what the rows of a pass are a multiple of; others stand in for
    those that lack. compute: VeRL's pass, which puts the log-probabilities into its queue.
    """
    places = [place for place, flag in enumerate(added) if flag]
    if not places:
        return list(old)
    others = [place for place, flag in enumerate(added) if not flag]
    chosen = batch.select_keys([batch.keys[place] for place in [*places, *others[: -len(places) % multiple]]])
    chosen.extra_info.update(calculate_entropy=False, compute_loss=False, no_lora_adapter=False)
    compute(chosen)
    data = tq.kv_batch_get(
        keys=chosen.keys, partition_id=chosen.partition_id, select_fields=["log_probs", "response_mask"]
    )
    now = response_from_nested(data["log_probs"], data["response_mask"]).unbind()
    fresh = dict(zip(places, now, strict=False))
    return [fresh.get(place, row) for place, row in enumerate(old)]
