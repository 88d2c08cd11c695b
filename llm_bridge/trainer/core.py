"""VeRL's synchronous trainer with a regularizer: added rows and advantages under VeRL's own loss.

The regularized prompts of a step are drawn from the buffer, or are the RL batch's own (`cokl.prompts`). The added rows
go through VeRL's rollouts, reward function, log-probabilities and actor update. They have no response tokens until the
update, so that no advantage, entropy or average of VeRL's sees them. For the update they get their tokens and the
advantages of `llm_bridge.trainer.advantages`. A group that lost a response to a failed rollout is left out of its step.

With several optimizer steps per rollout VeRL's update is called once for each, see `llm_bridge.trainer.several`.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.metric import reduce_metrics

from cokl.groups import RegularizationRows, SurrogateConfig
from cokl.responses.buffer import CachedGroup, prompt_key
from cokl.support.errors import InputError
from llm_bridge.trainer.advantages import Aggregation, regularized_advantages
from llm_bridge.trainer.checks import draw_order, look, resumed
from llm_bridge.trainer.metrics import gradient_share, row_metrics, without_added
from llm_bridge.trainer.rows import StepRows, ask, finite_sums, join
from llm_bridge.trainer.settings import padded_prompts, row_multiple
from llm_bridge.trainer.several import current_log_probs, mini_batches

logger = logging.getLogger(__name__)
IDLE_STEPS = 10
"""Steps in a row without any weight after which a run ends."""


@register_trainer("cokl")
class CoKLTrainer(PPOTrainerSync):
    """RL plus a method that weights responses to known prompts. Model, data and rewards are the user's."""

    def __init__(self, config: DictConfig) -> None:
        """config: VeRL's whole configuration; by this name, since VeRL passes it as a keyword."""
        config.trainer.v1.trainer_mode = "sync"  # VeRL compares with the name of the trainer that this one extends
        refused, settings, groups = look(config)
        if refused or settings is None:
            raise InputError("; ".join(refusal.reason for refusal in refused))
        self.settings, self.method = settings, settings.method
        self.drawn = groups if self.settings.prompts == "buffer" else ()
        self.cache = {} if self.drawn else {group.key: group for group in reversed(groups)}
        self.order = draw_order(self.settings, groups)
        self.step_rows, self.idle = StepRows(), 0
        actor, ref = config.actor_rollout_ref.actor, config.actor_rollout_ref.ref
        self.epochs, self.mini_batches = actor.ppo_epochs, config.data.train_batch_size // actor.ppo_mini_batch_size
        self.rl_rows = actor.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n
        with open_dict(config):
            actor.ppo_epochs = 1
            if self.method.compares_with_reference and not actor.use_kl_loss:
                actor.use_kl_loss, actor.kl_loss_coef = True, 0.0  # has VeRL bring the reference policy
                sizes = ref.log_prob_micro_batch_size_per_gpu, actor.ppo_micro_batch_size_per_gpu
                ref.log_prob_micro_batch_size_per_gpu = sizes[0] or sizes[1] or 1
        super().__init__(config)

    # ------------------------------ one batch of prompts ------------------------------

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        """VeRL's prompts, and what the regularizer asks for beside them."""
        batch = super()._next_train_batch(num_prompts)
        rollout = self.config.actor_rollout_ref.rollout
        training = {} if self.settings.prompts == "buffer" else self._cached_by_uid(batch)
        places = self.order.draw(self.settings.kl_prompts) if self.drawn else []
        drawn = [self._brought(self.drawn[place]) for place in places]
        rows, self.step_rows = ask(drawn, training, self.method.streams(), rollout.n, self.global_steps)
        defaults = {"agent_name": rollout.agent.default_agent_loop, "__rollout_n__": rollout.n}
        return join(batch, rows, defaults)

    def _cached_by_uid(self, batch: TensorDict) -> dict[str, CachedGroup | None]:
        """What is cached for each of VeRL's prompts; None for one that is not regularized."""
        names = ("uid", "raw_prompt", "reward_model")
        uids, prompts, answers = ([value.data for value in batch.get(name).unbind(0)] for name in names)
        asked = zip(prompts, answers, strict=True)
        groups = [self.cache.get(prompt_key(messages, answer["ground_truth"])) for messages, answer in asked]
        return {str(uid): group and self._brought(group) for uid, group in zip(uids, groups, strict=True)}

    def _brought(self, group: CachedGroup) -> CachedGroup:
        """The cached responses that a prompt brings, another draw in each step."""
        count, seed = self.settings.cached_per_prompt, [self.settings.seed, self.global_steps]
        return group.drawn(count, seed, self.method.blind_to_wrong_cached) if count else group

    def _step_once(self, metrics: dict, timing_raw: dict, sample_batch_size: int) -> KVBatchMeta:
        return super()._step_once(metrics, timing_raw, sample_batch_size + self.step_rows.asked)

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict, **options: Any) -> KVBatchMeta:
        """VeRL's, of each optimizer step's rows by themselves; from here on the added rows have no tokens.

        Raises InputError if no RL row came back.
        """
        added = [key for key in batch.keys if self.step_rows.added(key)]
        if len(added) == len(batch):
            failed = "the agent loop or the reward function failed for all of them, and VeRL has logged its errors"
            raise InputError(f"no RL response came back: {failed}")
        self._hide(batch, added)
        parts = mini_batches(self.step_rows, batch.keys, self.mini_batches) if self.mini_batches > 1 else [batch.keys]
        with open_dict(self.config):
            prompts = padded_prompts(self.config, max(map(len, parts)))
            self.config.actor_rollout_ref.actor.ppo_mini_batch_size = prompts
        balanced = [super(CoKLTrainer, self)._balance_batch(batch.select_keys(p), metrics, **options) for p in parts]
        keys, tags = ([entry for part in balanced for entry in getattr(part, name)] for name in ("keys", "tags"))
        padding = [key for key, tag in zip(keys, tags, strict=True) if tag.get("is_padding")]
        self.masks |= dict.fromkeys(padding, torch.zeros(1, dtype=torch.int64))  # which some estimators would count
        return replace(balanced[0], keys=keys, tags=tags)

    def _hide(self, batch: KVBatchMeta, added: list[str]) -> None:
        """Take the added rows' tokens away until the update."""
        self.masks: dict[str, Tensor] = {}
        if not added:
            return
        masks = self._get(batch.select_keys(added), "response_mask")["response_mask"]
        self.masks = dict(zip(added, masks, strict=True))
        nothing = [torch.zeros_like(mask) for mask in self.masks.values()]
        self._put(batch.select_keys(added), {"response_mask": nothing, "loss_mask": nothing})

    def _compute_metrics(self, batch: KVBatchMeta, metrics, timing_raw, global_steps, epoch) -> None:
        """VeRL's metrics of the RL rows alone."""
        super()._compute_metrics(self._of_rl(batch), metrics, timing_raw, global_steps, epoch)

    def _of_rl(self, batch: KVBatchMeta) -> KVBatchMeta:
        return batch.select_keys([key for key in batch.keys if key not in self.masks])

    # ------------------------------ weights ------------------------------

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """VeRL's, of the RL rows alone; then the regularized rows are indexed, and the log shows them."""
        super()._compute_advantage(self._of_rl(batch), metrics)
        if self.masks:
            made = self._get(self._of_rl(batch), "advantages", "returns", "token_level_rewards")
            zeros = [torch.zeros(len(mask)) for mask in self.masks.values()]
            self._put(batch.select_keys(list(self.masks)), dict.fromkeys(made, zeros))
        columns = self._get(batch, "response_mask", "old_log_probs", "rm_scores", "ref_log_prob")
        rows = zip(batch.keys, columns["response_mask"], strict=True)
        self.row_masks = [self.masks.get(key, mask) for key, mask in rows]
        self.old_log_probs = columns["old_log_probs"]
        self.rows = self._indexed_rows(batch.keys, columns)
        metrics.update(row_metrics(self.step_rows, self.rows))
        self._check_step(batch)
        return batch

    def _indexed_rows(self, keys: list[str], columns: dict[str, list]) -> RegularizationRows:
        """All rows of the batch, at which the policy that sampled them is the current one."""
        scores, index = finite_sums(columns["rm_scores"]), self.step_rows.index(keys)
        threshold = torch.full_like(scores, self.settings.correct_above)
        threshold[index.reference] = 0.5  # the buffer holds verdicts, 0 or 1
        compares = self.method.compares_with_reference
        lengths = torch.stack([mask.sum() for mask in self.row_masks]).double()
        return RegularizationRows(
            index=index,
            log_probs=_row_sums(self.old_log_probs, self.row_masks),
            rewards=(scores > threshold).double(),
            reference_log_probs=_row_sums(columns["ref_log_prob"], self.row_masks) if compares else None,
            tokens=lengths if self.settings.length == "token-mean" else None,
        )

    def _check_step(self, batch: KVBatchMeta) -> None:
        """Warn of a step without any weight.

        Raises InputError for `IDLE_STEPS` of them in a row, and if responses to one prompt answer different tokens.
        """
        weights = self.method.row_weights(self.rows, self.settings.beta, SurrogateConfig())
        self.idle = 0 if weights.any() else self.idle + 1
        if self.idle:
            prompts = {member.prompt for member in self.step_rows.members.values()}
            whole = max(map(len, self.rows.index))
            reason = f"{len(prompts)} prompts to regularize, {whole} with all of their responses, none with a weight"
            logger.warning(f"cokl: step {self.global_steps} is plain RL: {reason} ({self.idle} in a row)")
            if self.idle == IDLE_STEPS:
                raise InputError(f"{IDLE_STEPS} steps in a row were plain RL; in the last one: {reason}")
        seen: dict[int, Tensor] = {}
        for key, tokens in zip(batch.keys, self._get(batch, "prompts")["prompts"], strict=True):
            member = self.step_rows.member(key)
            if member and not torch.equal(first := seen.setdefault(member.prompt, tokens), tokens):
                raise InputError(
                    f"a prompt has {len(first)} tokens with one response and {len(tokens)} or others with another: "
                    "build the buffer with the chat template, tools and system prompt of this run, and shorten none"
                )

    # ------------------------------ optimizer steps ------------------------------

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """VeRL's update, once for each optimizer step; after the first, gamma is that of the current policy."""
        size = len(batch) // self.mini_batches
        steps: list[dict] = []
        for start in [*range(0, len(batch), size)] * self.epochs:
            steps.append({})
            self._optimizer_step(batch.select_keys(batch.keys[start : start + size]), start, steps)
        metrics.update(reduce_metrics({name: [step[name] for step in steps] for name in steps[0]}))
        return batch

    def _optimizer_step(self, batch: KVBatchMeta, start: int, steps: list[dict]) -> None:
        """One of them, on the rows from `start` on; its metrics go into the last of `steps`."""
        rows = slice(start, start + len(batch))
        masks, old = self.row_masks[rows], self.old_log_probs[rows]
        weighed = replace(self.rows, index=self.rows.index.within(rows.start, rows.stop))
        added = torch.tensor([self.step_rows.added(key) for key in batch.keys])
        if len(steps) > 1:
            batch.extra_info["temperature"] = self.config.actor_rollout_ref.rollout.temperature
            compute = self.actor_rollout_wg.compute_log_prob
            old = current_log_probs(batch, old, added.tolist(), row_multiple(self.config), compute)
            now = self.rows.log_probs.clone()
            now[rows] = _row_sums(old, masks)
            weighed = replace(weighed, log_probs=now, behavior_log_probs=self.rows.log_probs)
        weights = self.method.row_weights(weighed, self.settings.beta, SurrogateConfig())[rows]
        advantages = self._get(batch, "advantages")["advantages"]
        actor = self.config.actor_rollout_ref.actor
        aggregation = Aggregation(actor.loss_agg_mode, len(batch), self.rl_rows, actor.loss_scale_factor or 1.0)
        columns = {
            "advantages": regularized_advantages(advantages, masks, weights, added, aggregation),
            "response_mask": masks,
        }
        columns |= {"old_log_probs": old} if len(steps) > 1 else {}
        if actor.use_kl_loss:  # the KL of an added row is 0, and so is its gradient
            there = self._get(batch, "ref_log_prob")["ref_log_prob"]
            columns["ref_log_prob"] = [now if flag else row for now, row, flag in zip(old, there, added, strict=True)]
        super()._update_actor(self._put(batch, columns), steps[-1])
        self._put(batch, {"advantages": advantages})
        loss = float(weights @ weighed.log_probs[rows])
        tokens = torch.stack([mask.sum() for mask in masks]).double()
        counted = loss if actor.policy_loss.loss_mode in ("gpg", "cispo") else float(weights.double() @ tokens)
        without_added(steps[-1], counted, loss, tokens, added, aggregation.rl_factor)
        steps[-1]["cokl/loss"] = loss
        steps[-1]["cokl/gradient_share"] = gradient_share(advantages, masks, weights, added, aggregation)

    def _get(self, batch: KVBatchMeta, *names: str) -> dict[str, list]:
        """Columns of the batch that are there, a value per row."""
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(names))
        return {
            name: list(data[name].unbind() if isinstance(data[name], Tensor) else data[name])
            for name in data.keys()  # noqa: SIM118  a TensorDict is no container of names
        }

    def _put(self, batch: KVBatchMeta, columns: dict[str, list[Tensor]]) -> KVBatchMeta:
        nested = {name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in columns.items()}
        fields = TensorDict(nested, batch_size=len(batch))
        put = tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)
        return replace(batch, fields=put.fields)  # the columns that workers fetch

    # ------------------------------ checkpoints ------------------------------

    def _save_checkpoint(self) -> None:
        """VeRL's checkpoint, with the position in the buffer, saved before VeRL calls the checkpoint complete."""
        self.order.save(Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}")
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        """Raises InputError if the checkpoint holds no position in this buffer."""
        super()._load_checkpoint()
        if folder := resumed(self.config):
            self.order.resume(folder)


def _row_sums(rows: list[Tensor], masks: list[Tensor]) -> Tensor:
    """(R,): sums over the tokens of each row that the policy wrote."""
    return torch.stack([(row.double() * mask).sum() for row, mask in zip(rows, masks, strict=True)])
