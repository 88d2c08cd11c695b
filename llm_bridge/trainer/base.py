"""VeRL's synchronous trainer with rewards of our own function for every row, and averages as its validation metrics.

What a step computes does not depend on the order in which its responses arrive: each request has a seed of its own
(`llm_bridge.trainer.agent_loop`), prompts are numbered as they are drawn, where VeRL gives them random names, and rows
are put in that order before anything is summed over them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import DictConfig
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.protocol import DataProto
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.losses import ppo_loss

from llm_bridge.rewards.repeated import validation_metrics

CPU_POLL_SECONDS = 0.2
"""How often the trainer looks whether a tiny model's rollouts are done, whose step would mostly be VeRL's 2 s."""
SCORE = "pkg://llm_bridge.rewards.score"
"""The reward function that knows which rows a reward model has to see."""
_REWARD_FIELDS = ["raw_prompt", "data_source", "reward_model", "extra_info"]


@register_trainer("rewarded")
class RewardedTrainer(PPOTrainerSync):
    """The trainer of the experiment's math stage and evaluation, and of whatever has no regularizer."""

    def __init__(self, config: DictConfig) -> None:
        """config: VeRL's whole configuration; by this name, since VeRL passes it as a keyword."""
        config.trainer.v1.trainer_mode = "sync"  # VeRL compares with the name of the trainer that this one extends
        self.prompts_drawn = 0
        super().__init__(config)

    def actor_loss(self) -> Callable[..., Any]:
        """What the actor's workers minimize: VeRL's own loss under this configuration."""
        return partial(ppo_loss, config=omega_conf_to_dataclass(self.config.actor_rollout_ref.actor))

    def next_uid(self) -> str:
        """The next prompt's name; names sort as they were given out. VeRL wants them without "_"."""
        self.prompts_drawn += 1
        return f"{self.prompts_drawn:012d}"

    def _fetch_one_gen_batch(self) -> TensorDict:
        batch = super()._fetch_one_gen_batch()
        tu.assign_non_tensor_stack(batch, "uid", [self.next_uid() for _ in range(len(batch))])
        return batch

    def _balance_batch(self, batch: KVBatchMeta, metrics, **options) -> KVBatchMeta:
        """VeRL's, of rows in the order of their prompts and of their numbers in the group."""
        batch.reorder(sorted(range(len(batch)), key=lambda row: batch.keys[row]))
        return super()._balance_batch(batch, metrics, **options)

    def _build_replay_buffer(self):
        buffer = super()._build_replay_buffer()
        if self.config.trainer.device == "cpu":
            buffer.poll_interval = CPU_POLL_SECONDS
        return buffer

    def _compute_reward_colocate(self, batch: KVBatchMeta, metrics: dict | None = None) -> KVBatchMeta:
        """As VeRL's, but the reward function is told the data source and the ground truth of each row.

        VeRL hands a colocated reward model the prompts only, while our function sends chat rows to the reward model
        and mathematics to the verifier. `reward/truncated` counts replies of which the reward model read a beginning.
        """
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["prompts", "responses", *_REWARD_FIELDS]
        )
        lengths = data["responses"].offsets().diff()
        padded, mask = {}, []
        for name in ("prompts", "responses"):
            padded[name] = data[name].to_padded_tensor(padding=self.tokenizer.pad_token_id)
            mask.append(self._lengths_to_mask(data[name].offsets().diff(), padded[name].size(1)))
        columns = {}
        for name in _REWARD_FIELDS:
            columns[name] = np.empty(len(batch), dtype=object)
            columns[name][:] = list(data[name])
        manager = self.reward_loop_manager
        ours = self.config.reward.custom_reward_function.path == SCORE
        if ours and not any(len(info.get("conversation", ())) for info in columns["extra_info"]):
            manager = copy.copy(manager)  # mathematics alone: the reward model sleeps on
            manager.reward_model_manager = None
        scored = manager.compute_rm_score(
            DataProto(
                batch=TensorDict({**padded, "attention_mask": torch.cat(mask, dim=1)}, batch_size=len(batch)),
                non_tensor_batch=columns,
            )
        )
        verdicts = scored.non_tensor_batch.get("verdict")
        if metrics is not None and verdicts is not None:
            metrics["reward/truncated"] = int((verdicts == "truncated").sum())
        scores = torch.nested.as_nested_tensor(
            [row[:length] for row, length in zip(scored.batch["rm_scores"], lengths.tolist(), strict=True)],
            layout=torch.jagged,
        )
        tq.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=tu.get_tensordict({"rm_scores": scores})
        )
        return batch

    def _val_metrics_update(
        self, data_sources, sample_uids, reward_extra_infos_dict, sample_turns, expected_acc_counts=None
    ) -> dict[str, float]:
        """What a prompt's responses say together, see `validation_metrics`.

        VeRL's own metrics bootstrap every prompt, which takes minutes for the paper's evaluation sets, and whose draws
        with replacement are no unbiased pass@k.
        """
        rewards, answers = reward_extra_infos_dict["reward"], reward_extra_infos_dict.get("answer")
        return validation_metrics(data_sources, sample_uids, rewards, answers)


def bring_reference(trainer: PPOTrainer) -> None:
    """Give the trainer's actor, rollout and reference one worker, where VeRL has planned one without a reference."""
    for roles in (trainer.role_worker_mapping, trainer.mapping):
        roles[Role.ActorRolloutRef] = roles.pop(Role.ActorRollout)
