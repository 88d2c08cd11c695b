"""VeRL's synchronous trainer with rewards of our own function for every row, and averages as its validation metrics.

What a step computes does not depend on the order in which its responses arrive: each request has a seed of its own,
prompts are numbered as they are drawn, where VeRL gives them random names, and rows are put in that order before
anything is summed over them. The engine's seed alone repeats nothing: vLLM draws all requests of an engine from one
generator, in the order in which they happen to arrive. VeRL's `full_determinism` does not serve either: it gives all
requests one seed, and so makes a group of G copies.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import DictConfig
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, register
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.protocol import DataProto
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu

from cokl.support.errors import InputError
from llm_bridge.rewards.repeated import validation_metrics
from llm_bridge.trainer.core import CoKLTrainer
from llm_bridge.trainer.rows import MEMBER

_REWARD_FIELDS = ["raw_prompt", "data_source", "reward_model", "extra_info"]


@register_trainer("rewarded")
class RewardedTrainer(PPOTrainerSync):
    """The trainer of the experiment's math stage and evaluation, and of whatever has no regularizer."""

    def __init__(self, config: DictConfig) -> None:
        """config: VeRL's whole configuration; by this name, since VeRL passes it as a keyword."""
        config.trainer.v1.trainer_mode = "sync"  # VeRL compares with the name of the trainer that this one extends
        self.prompts_drawn = 0
        super().__init__(config)

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

    def _compute_reward_colocate(self, batch: KVBatchMeta, metrics: dict | None = None) -> KVBatchMeta:
        """As VeRL's, but the reward function is told the data source and the ground truth of each row.

        VeRL hands a colocated reward model the prompts only, while our function sends chat rows to the reward model
        and mathematics to the verifier.
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
        scored = self.reward_loop_manager.compute_rm_score(
            DataProto(
                batch=TensorDict({**padded, "attention_mask": torch.cat(mask, dim=1)}, batch_size=len(batch)),
                non_tensor_batch=columns,
            )
        )
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

        VeRL's own metrics bootstrap every prompt, which takes minutes for the paper's evaluation sets. Raises
        InputError where the reward function failed for a response: VeRL would leave it out, so that the others'
        average would stand for all.
        """
        if lost := sum((expected_acc_counts or {}).values()) - len(sample_uids):
            raise InputError(f"{lost} evaluated responses have no reward: the reward function failed, as logged above")
        rewards, answers = reward_extra_infos_dict["reward"], reward_extra_infos_dict.get("answer")
        return validation_metrics(data_sources, sample_uids, rewards, answers)


@register_trainer("cokl_rewarded")
class RewardedCoKLTrainer(CoKLTrainer, RewardedTrainer):
    """The trainer of the experiment's chat stage: CoKL's, with our rewards and validation metrics."""

    def _compute_reward_colocate(self, batch: KVBatchMeta, metrics: dict | None = None) -> KVBatchMeta:
        """Cached responses keep the verdict that they were stored with."""
        members = map(self.step_rows.member, batch.keys)
        fresh = [k for k, member in zip(batch.keys, members, strict=True) if not member or member.stream == "rollout"]
        super()._compute_reward_colocate(batch.select_keys(fresh), metrics)
        return batch


@register("seeded")
class SeededLoop(SingleTurnAgentLoop):
    """VeRL's single-turn loop with a seed for each request, so that what is drawn does not depend on the others."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """One response to `raw_prompt`, drawn with a seed of its experiment, step, prompt and number in the group."""
        member = kwargs.get(MEMBER)
        seed = request_seed(
            self.rollout_config.seed,
            int(kwargs["global_steps"]),
            str(kwargs["data_source"]),
            int(kwargs["index"]),
            [dict(message) for message in kwargs["raw_prompt"]],
            int(kwargs["session_id"] if member is None else member),
        )
        return await super().run({**sampling_params, "seed": seed}, **kwargs)


def request_seed(*identity: Any) -> int:
    """A seed in [0, 2^31) that differs between requests that differ in any part of their identity, JSON values."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
