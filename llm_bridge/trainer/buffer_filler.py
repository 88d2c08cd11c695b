"""VeRL's side of building the reference-correct buffer: sample, and verify.

On a user's own command, `trainer.v1.trainer_mode=cokl_buffer +cokl.buffer=FILE`, with the prompts of
`data.train_files`: engine, template, reward function and temperature are those of the run to come.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from tqdm import tqdm
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from cokl.support.errors import InputError
from llm_bridge.buffer.groups import Buffer, CachedGroup, model_fingerprint, plain
from llm_bridge.trainer.checks import penalized
from llm_bridge.trainer.rows import AGENT, finite_sums, scores_of_function

_TENSORS = ["prompts", "responses", "rm_scores", "response_mask"]
_VALUES = ["uid", "raw_prompt", "data_source", "reward_model", "extra_info", "extra_fields"]


@register_trainer("cokl_buffer")
class BufferTrainer(PPOTrainerSync):
    """Fills the buffer at `cokl.buffer` from all prompts of the training file, and trains nothing."""

    def __init__(self, config: DictConfig) -> None:
        """config: VeRL's whole configuration; by this name, since VeRL passes it as a keyword."""
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"  # VeRL compares with the name of the trainer that this one extends
            config.trainer.resume_mode = "disable"  # a checkpoint's weights would answer in the model's name
            config.algorithm.filter_groups = {"enable": False}  # a buffer keeps every prompt
            config.trainer.total_training_steps = 1  # for the optimizer that VeRL makes, of which no step is taken
        super().__init__(config)

    def fit(self, agent_loop_manager) -> None:
        """Sample G_ref responses to each prompt and save the buffer. Raises InputError if none can be used."""
        self.agent_loop_manager = agent_loop_manager
        prompts, size = len(self.train_dataset), self.config.data.train_batch_size
        groups: list[CachedGroup] = []
        for chunk, start in enumerate(tqdm(range(0, prompts, size), desc=f"buffer of {prompts} prompts"), start=1):
            groups += self._sample(range(start, min(start + size, prompts)), chunk)
        solved = np.mean([group.rewards.any() for group in groups])
        temperature = self.config.actor_rollout_ref.rollout.temperature
        once = {group.key: group for group in groups}  # a training file may hold a prompt twice
        fingerprint = model_fingerprint(self.config.actor_rollout_ref.model.path)
        Buffer(tuple(once.values()), fingerprint, temperature).save(Path(self.config.cokl.buffer))
        print(f"buffer: {len(groups)} prompts, {solved:.1%} with a correct response")

    def _sample(self, indices: range, chunk: int) -> list[CachedGroup]:
        """The cached groups of these prompts, in their order."""
        self.global_steps = chunk
        rows = collate_fn([self.train_dataset[index] for index in indices])
        uids = [f"{index:012d}" for index in indices]
        rows["uid"] = np.array(uids, dtype=object)
        prompts = tu.get_tensordict(rows)
        tu.assign_non_tensor_data(prompts, "global_steps", self.global_steps)
        self._submit_batch_to_rollout(prompts)
        batch, _ = self.replay_buffer.sample(
            global_steps=self.global_steps, partition_id="train", batch_size=len(indices)
        )
        groups = self._groups(batch, uids)
        for group, agent in zip(groups, rows.get(AGENT, ()), strict=False):
            group.extra_info[AGENT] = str(agent)
        tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)
        return groups

    def _groups(self, batch: KVBatchMeta, uids: list[str]) -> list[CachedGroup]:
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=[*_TENSORS, *_VALUES])
        columns = {name: list(data[name].unbind()) for name in _TENSORS}
        columns |= {name: list(data[name]) for name in _VALUES}
        scores = finite_sums(columns["rm_scores"])
        if penalized(self.config):
            scores = scores_of_function(scores, columns["extra_fields"])
        above = self.config.cokl.get("correct_above", 0.5)
        members: dict[str, list[int]] = {uid: [] for uid in uids}
        for row, uid in enumerate(columns["uid"]):
            members[str(uid)].append(row)
        expected = self.config.actor_rollout_ref.rollout.n
        groups = []
        for answers in members.values():
            if len(answers) != expected:
                failed = "the agent loop or the reward function failed for the others, and VeRL has logged its errors"
                raise InputError(f"a prompt got {len(answers)} of its {expected} responses: {failed}")
            first = answers[0]
            groups.append(
                CachedGroup(
                    prompt=[
                        {name: part for name, part in message.items() if part is not None}
                        for message in columns["raw_prompt"][first]
                    ],
                    data_source=str(columns["data_source"][first]),
                    ground_truth=plain(columns["reward_model"][first]["ground_truth"]),
                    prompt_ids=columns["prompts"][first].numpy(),
                    response_ids=[columns["responses"][row].numpy() for row in answers],
                    rewards=np.array([int(scores[row] > above) for row in answers]),
                    extra_info=plain(columns["extra_info"][first]),
                    masks=[columns["response_mask"][row].numpy() for row in answers],
                )
            )
        return groups
