"""VeRL's synchronous trainer with a second stream: a regularization minibatch from the buffer beside the RL batch.

The added rows go through VeRL's own rollouts, verifier, log-probabilities and actor update. Group weights are computed
here, over whole groups, before micro-batching (`weights`); the actor's loss is `loss.joint_loss`. A group that lost
a response to a failed rollout is left out of its step. VeRL's mini-batch size counts RL prompts: the added rows are
spread over the mini-batches, whole groups each.

With several optimizer steps per rollout a learning-rate schedule is refused, since VeRL would advance it once per
optimizer step.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from tensordict import NonTensorData, TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import reduce_metrics
from verl.workers.utils.padding import response_from_nested

from cokl.support.errors import InputError
from cokl.support.files import read_json, write_text
from llm_bridge.buffer import Buffer, CachedGroup, DrawOrder, model_fingerprint
from llm_bridge.trainer.base import RewardedTrainer
from llm_bridge.trainer.loss import ADDED, RL_BATCH_SIZE, WEIGHT, joint_loss
from llm_bridge.trainer.options import RegularizationSettings, batch_shape, check_settings
from llm_bridge.trainer.weights import RegularizationRows, row_weights

AGENT_LOOPS = Path(__file__).parent / "agent_loops.yaml"
_PLACE = "buffer_position.json"
"""The buffer's place in a checkpoint folder."""
_Step = Callable[[KVBatchMeta, dict], KVBatchMeta]


@register_trainer("cokl")
class CoKLTrainer(RewardedTrainer):
    """The trainer of the chat stage; with a method that has no streams it is VeRL's, and reads no buffer."""

    def __init__(self, config: DictConfig) -> None:
        super().__init__(config)
        self.settings = RegularizationSettings.read(config)
        self.method = self.settings.chosen()
        self.streams = self.method.streams()
        self.minibatch: dict[str, tuple[str, int]] = {}  # of the added rows' uids: stream and prompt of the minibatch
        self.rewards: dict[str, float] = {}  # of rows by key, as all below
        self.rollout_log_probs: dict[str, float] = {}
        self.weights: dict[str, float] = {}
        self.reference_log_probs: dict[str, float] = {}
        if not self.streams:
            return
        buffer = Buffer.load(
            Path(self.settings.buffer), model_fingerprint(Path(config.actor_rollout_ref.model.path).expanduser())
        )
        self.buffer = buffer.filtered() if self.method.filtered else buffer
        self.order = DrawOrder(len(self.buffer), self.settings.seed)
        check_settings(config, self.buffer.group_size)
        self.shape = batch_shape(config, self.buffer.group_size)
        self.compared = self.method.compares_with_reference
        self.use_reference_policy = self.compared
        actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
        self.epochs = actor.ppo_epochs
        with open_dict(config):
            rollout.agent.agent_loop_config_path = str(AGENT_LOOPS)
            actor.ppo_mini_batch_size = self.shape.mini_batch // rollout.n
            actor.ppo_epochs = 1

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        if self.use_reference_policy:
            for roles in (self.role_worker_mapping, self.mapping):
                roles[Role.ActorRolloutRef] = roles.pop(Role.ActorRollout)

    def _setup(self) -> None:
        super()._setup()
        if self.streams:
            actor = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
            self.actor_rollout_wg.set_loss_fn(partial(joint_loss, config=actor))

    # ------------------------------ the regularization minibatch ------------------------------

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        batch = super()._next_train_batch(num_prompts)
        if not self.streams:
            return batch
        self.minibatch = {}
        drawn = [self.buffer.groups[index] for index in self.order.draw(self.settings.kl_prompts)]
        rows = [row for number, group in enumerate(drawn) for row in self._rows(number, group)]
        agent_loop = self.config.actor_rollout_ref.rollout.agent.default_agent_loop
        defaults = {"agent_name": agent_loop, "__rollout_n__": self.config.actor_rollout_ref.rollout.n}
        columns = dict(batch.items())
        joint_columns: dict[str, Any] = {}
        for name in dict.fromkeys([*columns, *defaults, "cached_response"]):
            column = columns.get(name)
            if isinstance(column, torch.Tensor):
                joint_columns[name] = torch.cat([column, column.new_zeros(len(rows), *column.shape[1:])])
            elif not isinstance(column, NonTensorData):
                default = defaults.get(name)
                present = [default] * len(batch) if column is None else [value.data for value in column.unbind(0)]
                joint_columns[name] = present + [row.get(name, default) for row in rows]
        joint = tu.get_tensordict(joint_columns)
        tu.assign_non_tensor_data(joint, "global_steps", self.global_steps)
        return joint

    def _rows(self, number: int, group: CachedGroup) -> Iterator[dict[str, Any]]:
        """What VeRL is asked to generate for a prompt: G_ref cached responses, and G fresh ones in one row."""
        prompt = {
            "raw_prompt": group.prompt,
            "data_source": group.data_source,
            "reward_model": {"ground_truth": group.ground_truth, "style": "rule"},
            "extra_info": {"index": number},
            "index": number,
            "tools_kwargs": {},
            "interaction_kwargs": {},
        }
        if "reference" in self.streams:
            for response_ids, log_probs, reward in zip(group.response_ids, group.log_probs, group.rewards, strict=True):
                cached = {
                    "prompt_ids": group.prompt_ids.tolist(),
                    "response_ids": response_ids.tolist(),
                    "log_probs": log_probs.tolist(),
                    "reward": float(reward),
                }
                yield prompt | {
                    "uid": self._new_uid("reference", number),
                    "agent_name": "cached_response",
                    "__rollout_n__": 1,
                    "cached_response": cached,
                }
        if "rollout" in self.streams:
            yield prompt | {"uid": self._new_uid("rollout", number)}

    def _new_uid(self, stream: str, number: int) -> str:
        uid = str(uuid.uuid4())
        self.minibatch[uid] = (stream, number)
        return uid

    def _step_once(self, metrics: dict, timing_raw: dict, sample_batch_size: int) -> KVBatchMeta:
        return super()._step_once(metrics, timing_raw, sample_batch_size + len(self.minibatch))

    # ------------------------------ the two streams apart ------------------------------

    def _stream(self, key: str) -> str:
        """Which stream a row belongs to: "rl", "reference" or "rollout"; padding counts as "rl"."""
        return self.minibatch.get(_uid(key), ("rl", 0))[0]

    def _apart(self, batch: KVBatchMeta) -> tuple[KVBatchMeta, KVBatchMeta]:
        """RL rows and added rows; padding stands for the rows that either lacks."""
        added = [key for key in batch.keys if self._stream(key) != "rl"]
        padding = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if tag.get("is_padding", False)]
        added += padding[: self.shape.added - len(added)]
        chosen = set(added)
        rl = [key for key in batch.keys if key not in chosen]
        return batch.select_keys(rl), batch.select_keys(added)

    def _run_apart(self, step: _Step, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """A step of VeRL's on either stream, of which `metrics` sees the RL rows only."""
        if not self.streams:
            return step(batch, metrics)
        rl, added = self._apart(batch)
        step(added, {})
        return replace(batch, fields=step(rl, metrics).fields)

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        return self._run_apart(super()._compute_old_log_prob, batch, metrics)

    def _compute_reward_colocate(self, batch: KVBatchMeta, metrics: dict | None = None) -> KVBatchMeta:
        """Cached responses keep the verdict that they were stored with."""
        fresh = [key for key in batch.keys if self._stream(key) != "reference"]
        super()._compute_reward_colocate(batch.select_keys(fresh), metrics)
        return batch

    def _compute_metrics(self, batch: KVBatchMeta, metrics, timing_raw, global_steps, epoch) -> None:
        """VeRL's metrics of the RL rows, except that speed and time count all rows."""
        if not self.streams:
            super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
            return
        everything: dict[str, Any] = {}
        super()._compute_metrics(batch, everything, timing_raw, global_steps, epoch)
        super()._compute_metrics(self._apart(batch)[0], metrics, timing_raw, global_steps, epoch)
        metrics.update({name: everything[name] for name in everything if name.startswith(("perf/", "timing"))})

    # ------------------------------ weights ------------------------------

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Of the regularization rollouts only: no other row is compared with the reference."""
        rollouts = [key for key in batch.keys if self._stream(key) == "rollout"]
        self.reference_log_probs = self._log_likelihoods(
            batch, rollouts, self.shape.rollout, self.ref_policy_wg.compute_ref_log_prob
        )
        return batch

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """VeRL's advantages, then the group weights; the added rows lose their part in VeRL's token count."""
        batch = self._run_apart(super()._compute_advantage, batch, metrics)
        if not self.streams:
            return batch
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["old_log_probs", "rm_scores", "loss_mask"]
        )
        self.rollout_log_probs = _row_sums(batch.keys, data["old_log_probs"])
        self.rewards = _row_sums(batch.keys, data["rm_scores"])
        self.weights = {}
        for part in self._mini_batches(batch):
            self.weights |= self._weights(part, self.rollout_log_probs)
        metrics.update(self._metrics(batch))
        added = [self._stream(key) != "rl" for key in batch.keys]
        masks = [mask * (not flag) for mask, flag in zip(data["loss_mask"].unbind(), added, strict=True)]
        columns = {
            WEIGHT: torch.tensor([[self.weights.get(key, 0.0)] for key in batch.keys]),
            ADDED: torch.tensor([[float(flag)] for flag in added]),
            "loss_mask": torch.nested.as_nested_tensor(masks, layout=torch.jagged),
        }
        fields = TensorDict(columns, batch_size=len(batch))
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    def _weights(self, part: KVBatchMeta, log_probs: dict[str, float]) -> dict[str, float]:
        """Weights of the rows of a mini-batch's whole groups, by key, under the current policy's `log_probs`."""
        keys = self._whole_groups(part)
        if not keys:
            return {}
        places = [self.minibatch[_uid(key)] for key in keys]

        def column(values: dict[str, float]) -> torch.Tensor:
            return torch.tensor([values.get(key, 0.0) for key in keys], dtype=torch.float64)

        rows = RegularizationRows(
            streams=[stream for stream, _ in places],
            groups=[number for _, number in places],
            log_probs=column(log_probs),
            rewards=column(self.rewards),
            behavior_log_probs=None if log_probs is self.rollout_log_probs else column(self.rollout_log_probs),
            reference_log_probs=column(self.reference_log_probs) if self.compared else None,
        )
        weights = row_weights(self.method, self.settings.beta, self.settings.surrogate(), rows)
        return dict(zip(keys, weights.tolist(), strict=True))

    def _whole_groups(self, part: KVBatchMeta) -> list[str]:
        """The added rows of prompts none of whose responses is missing."""
        keys = [key for key in part.keys if self._stream(key) != "rl"]
        numbers = [self.minibatch[_uid(key)][1] for key in keys]
        whole = self.shape.added // self.settings.kl_prompts
        sizes = Counter(numbers)
        return [key for key, number in zip(keys, numbers, strict=True) if sizes[number] == whole]

    def _metrics(self, batch: KVBatchMeta) -> dict[str, float]:
        """What the log shows of the regularization stream; `cokl/zero_correct` is E.4's fraction, of this step."""
        metrics = {"cokl/kl_rows": float(len(self.weights))}
        rewards: dict[str, list[float]] = {}
        lengths = []
        for key, tag in zip(batch.keys, batch.tags, strict=True):
            if self._stream(key) != "rl":
                lengths.append(tag["response_len"])
            if self._stream(key) == "rollout":
                rewards.setdefault(_uid(key), []).append(self.rewards[key])
        metrics["cokl/response_length"] = float(np.mean(lengths))
        if rewards:
            metrics["cokl/reward_mean"] = float(np.mean([reward for group in rewards.values() for reward in group]))
            metrics["cokl/zero_correct"] = float(np.mean([not any(group) for group in rewards.values()]))
        return metrics

    def _log_likelihoods(
        self, batch: KVBatchMeta, keys: list[str], size: int, compute: Callable[[KVBatchMeta], Any]
    ) -> dict[str, float]:
        """Sequence log-likelihoods by key, without gradient; other rows stand in for those missing from `size`."""
        wanted = set(keys)
        others = [key for key in batch.keys if key not in wanted]
        chosen = batch.select_keys([*keys, *others[: size - len(keys)]])
        temperature = self.config.actor_rollout_ref.rollout.temperature
        chosen.extra_info.update(calculate_entropy=False, compute_loss=False, temperature=temperature)
        compute(chosen)
        data = tq.kv_batch_get(
            keys=chosen.keys, partition_id=chosen.partition_id, select_fields=["log_probs", "response_mask"]
        )
        return _row_sums(chosen.keys, response_from_nested(data["log_probs"], data["response_mask"]))

    # ------------------------------ optimizer steps ------------------------------

    def _balance_batch(self, batch: KVBatchMeta, metrics, **options) -> KVBatchMeta:
        """Every mini-batch gets its share of RL rows and of whole groups, and is balanced over the ranks by itself."""
        if not self.streams or self.shape.mini_batches == 1:
            return super()._balance_batch(batch, metrics, **options)
        count = self.shape.mini_batches
        added: list[list[str]] = [[] for _ in range(count)]
        for key in batch.keys:
            if self._stream(key) != "rl":
                added[self.minibatch[_uid(key)][1] % count].append(key)
        rl = np.array_split([key for key in batch.keys if self._stream(key) == "rl"], count)
        parts = [
            super(CoKLTrainer, self)._balance_batch(batch.select_keys([*map(str, ours), *theirs]), metrics, **options)
            for ours, theirs in zip(rl, added, strict=True)
        ]
        keys, tags = ([entry for part in parts for entry in getattr(part, name)] for name in ("keys", "tags"))
        return replace(batch, keys=keys, tags=tags)

    def _mini_batches(self, batch: KVBatchMeta) -> list[KVBatchMeta]:
        size = self.shape.mini_batch
        return [batch.select_keys(batch.keys[start : start + size]) for start in range(0, len(batch), size)]

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """One optimizer step per mini-batch and epoch; after the first, gamma is that of the current policy.

        `cokl/loss` is the mean of the steps' losses, as the weights and log-likelihoods here have them; the worker logs
        its own as `actor/cokl/loss`.
        """
        if not self.streams:
            return super()._update_actor(batch, metrics)
        batch.extra_info[RL_BATCH_SIZE] = self.shape.rl // self.shape.mini_batches
        steps: list[dict] = []
        for part in self._mini_batches(batch) * self.epochs:
            steps.append({"cokl/loss": self._recompute_weights(part) if steps else self._first_loss(part)})
            super()._update_actor(part, steps[-1])
        metrics.update(reduce_metrics({name: [step[name] for step in steps] for name in steps[0]}))
        return batch

    def _first_loss(self, part: KVBatchMeta) -> float:
        """The regularization loss of the mini-batch that is updated on before the policy has moved."""
        return sum(self.weights[key] * self.rollout_log_probs[key] for key in part.keys if key in self.weights)

    def _recompute_weights(self, part: KVBatchMeta) -> float:
        """Give a mini-batch's rows the weights that they have under the current policy; its regularization loss."""
        keys = [key for key in part.keys if self._stream(key) != "rl"]
        size = self.shape.added // self.shape.mini_batches
        log_probs = self._log_likelihoods(part, keys, size, self.actor_rollout_wg.compute_log_prob)
        weights = self._weights(part, log_probs)
        fields = TensorDict({WEIGHT: torch.tensor([[weights.get(key, 0.0)] for key in keys])}, batch_size=len(keys))
        tq.kv_batch_put(keys=keys, partition_id=part.partition_id, fields=fields)
        return sum(weight * log_probs[key] for key, weight in weights.items())

    # ------------------------------ checkpoints ------------------------------

    def _save_checkpoint(self) -> None:
        """VeRL's checkpoint with the buffer's place in it, which is there before VeRL calls the checkpoint complete."""
        if self.streams:
            folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
            write_text(json.dumps(vars(self.order)), folder / _PLACE)
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        """Raises InputError if the checkpoint holds no place in this buffer."""
        super()._load_checkpoint()
        if not self.streams or self.global_steps == 0:
            return
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        if self.config.trainer.resume_mode == "resume_path":
            folder = Path(self.config.trainer.resume_from_path)
        if not (folder / _PLACE).is_file():
            raise InputError(f"{folder} holds no {_PLACE}: it is no checkpoint of a regularized run; start a new one")
        place = read_json(folder / _PLACE, dict)
        position = place.pop("position", None)
        if place != {"size": self.order.size, "seed": self.order.seed} or not isinstance(position, int):
            raise InputError(f"{folder / _PLACE} belongs to another buffer or seed; start a new run")
        self.order.position = position


def _uid(key: str) -> str:
    """The uid of the prompt that a row of VeRL's queue answers."""
    return key.split("_", maxsplit=1)[0]


def _row_sums(keys: list[str], rows: torch.Tensor) -> dict[str, float]:
    """Sums over the tokens of each row, by key."""
    return {key: float(row.double().sum()) for key, row in zip(keys, rows.unbind(), strict=True)}
