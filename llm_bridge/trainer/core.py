"""VeRL's synchronous trainer with a regularizer: added rows and advantages under VeRL's own loss.

The regularized prompts of a step are drawn from the buffer, or are the RL batch's own (`cokl.prompts`). The added rows
go through VeRL's rollouts, reward function, log-probabilities and actor update. They have no response tokens until the
update, so that no advantage, entropy or average of VeRL's sees them. For the update they get their tokens and the
advantages of `llm_bridge.trainer.advantages`. A group that lost a response to a failed rollout is left out of its step.

With several optimizer steps per rollout VeRL's update is called once for each. Every step has whole groups, and weights
of the policy of the moment (Eq. 15): before each step after the first, the added rows' log-probabilities are taken
anew. As the added rows' old log-probabilities they keep VeRL's ratio at 1. The RL rows' old ones stay those of the
policy that sampled. Training prompts are refused then (`llm_bridge.trainer.checks`): their rows, which are RL
rows and regularized ones at once, would need two ratios, that to the policy that sampled, and 1.
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
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import reduce_metrics
from verl.workers.utils.padding import response_from_nested

from cokl.groups import RegularizationRows, SurrogateConfig
from cokl.support.errors import InputError
from llm_bridge.buffer.groups import CachedGroup, prompt_key
from llm_bridge.trainer.advantages import Aggregation, regularized_advantages
from llm_bridge.trainer.checks import draw_order, filters_groups, look, penalized, resumed
from llm_bridge.trainer.loss import loss_of_rl_rows
from llm_bridge.trainer.metrics import gradient_share, row_metrics, without_added
from llm_bridge.trainer.rows import AGENT, StepRows, ask, finite_sums, join, scores_of_function
from llm_bridge.trainer.settings import padded_prompts, row_multiple
from llm_bridge.trainer.step import Step, lengths, row_sums

logger = logging.getLogger(__name__)
IDLE_STEPS = 10
"""Steps in a row without any weight after which a run ends."""


@register_trainer("cokl")
class CoKLTrainer(PPOTrainerSync):
    """RL plus a method that weights responses to known prompts. Model, data and rewards are the user's.

    VeRL calls its hooks in this order, once a step: `_next_train_batch`, `_step_once`, `_balance_batch`,
    `_compute_advantage`, `_update_actor`, `_compute_metrics`. What one hook leaves for later ones: `step_rows`, which
    rows were asked for; `hidden`, by key the masks of the rows that VeRL's own computations must not see.
    """

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
        self.hidden: dict[str, Tensor] = {}
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

    def _init_dataloader(self) -> None:
        """VeRL's, which also counts the steps of the learning-rate schedule.

        Each call of VeRL's update advances the schedule by one step, and here a rollout has several such calls. So the
        schedule gets as many steps for each of the user's: at the first optimizer step of a rollout the rate is that of
        a run with one optimizer step per rollout.
        """
        super()._init_dataloader()
        optim, calls = self.config.actor_rollout_ref.actor.optim, self.epochs * self.mini_batches
        for name in ("total_training_steps", "lr_warmup_steps", "lr_decay_steps", "lr_wsd_decay_steps"):
            if (optim.get(name) or 0) > 0:  # the last two are Megatron's
                optim[name] *= calls

    def _setup(self) -> None:
        """VeRL's, with a loss of which entropy and KL are of the RL rows alone."""
        super()._setup()
        actor = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
        self.actor_rollout_wg.set_loss_fn(loss_of_rl_rows(actor, self.rl_rows))

    def _build_replay_buffer(self) -> ReplayBuffer:
        """VeRL's, that never takes added rows for surplus.

        Where `filter_groups` asks for more groups than a step needs, VeRL keeps the first and drops the others.
        """
        buffer = super()._build_replay_buffer()
        if filters_groups(self.config):
            select = buffer._select_prompt_uids

            def added_first(partition_id: str, sampleable: set[str], size: int) -> tuple[list[str], dict, dict]:
                added = sorted(sampleable & self.step_rows.members.keys())
                chosen, rows, steps = select(partition_id, sampleable - set(added), size - len(added))
                return [*added, *chosen], rows, steps

            buffer._select_prompt_uids = added_first
        return buffer

    # ------------------------------ one batch of prompts ------------------------------

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        """VeRL's prompts, and what the regularizer asks for beside them.

        num_prompts: what VeRL asks for again, in place of groups that `filter_groups` has dropped: RL prompts alone.
        """
        batch = super()._next_train_batch(num_prompts)
        if num_prompts is not None:
            return batch
        rollout = self.config.actor_rollout_ref.rollout
        training = {} if self.settings.prompts == "buffer" else self._cached_by_uid(batch)
        places = self.order.draw(self.settings.kl_prompts) if self.drawn else []
        drawn = [self._brought(self.drawn[place]) for place in places]
        rows, self.step_rows = ask(drawn, training, self.method.streams(), rollout.n, self.global_steps)
        defaults = {AGENT: rollout.agent.default_agent_loop, "__rollout_n__": rollout.n}
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
        self.hidden = self._hide_added(batch)
        return self._pad(batch, self._split(batch.keys), metrics, options)

    def _hide_added(self, batch: KVBatchMeta) -> dict[str, Tensor]:
        """Take the added rows' tokens away until the update. Returns their masks, by key."""
        added = [key for key in batch.keys if self.step_rows.added(key)]
        if len(added) == len(batch):
            failed = "the agent loop or the reward function failed for all of them, and VeRL has logged its errors"
            raise InputError(f"no RL response came back: {failed}")
        if not added:
            return {}
        masks = self._get(batch.select_keys(added), "response_mask")["response_mask"]
        nothing = [torch.zeros_like(mask) for mask in masks]
        self._put(batch.select_keys(added), {"response_mask": nothing, "loss_mask": nothing})
        return dict(zip(added, masks, strict=True))

    def _split(self, keys: list[str]) -> list[list[str]]:
        """The rows of each optimizer step, whole groups in each."""
        return self.step_rows.mini_batches(keys, self.mini_batches) if self.mini_batches > 1 else [keys]

    def _pad(self, batch: KVBatchMeta, parts: list[list[str]], metrics: dict, options: dict) -> KVBatchMeta:
        """The parts, one after the other, each padded and balanced by VeRL to the size of the largest one.

        Some of VeRL's estimators would count the rows of padding, so that they are hidden as well.
        """
        with open_dict(self.config):
            prompts = padded_prompts(self.config, max(map(len, parts)))
            self.config.actor_rollout_ref.actor.ppo_mini_batch_size = prompts
        keys: list[str] = []
        tags: list[dict] = []
        for part in parts:
            balanced = super()._balance_batch(batch.select_keys(part), metrics, **options)
            keys += balanced.keys
            tags += balanced.tags
        padding = [key for key, tag in zip(keys, tags, strict=True) if tag.get("is_padding")]
        self.hidden |= dict.fromkeys(padding, torch.zeros(1, dtype=torch.int64))
        return replace(balanced, keys=keys, tags=tags)

    def _compute_metrics(self, batch: KVBatchMeta, metrics, timing_raw, global_steps, epoch) -> None:
        """VeRL's metrics of the RL rows alone."""
        super()._compute_metrics(self._of_rl(batch), metrics, timing_raw, global_steps, epoch)

    def _of_rl(self, batch: KVBatchMeta) -> KVBatchMeta:
        return batch.select_keys([key for key in batch.keys if key not in self.hidden])

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """VeRL's, of the RL rows alone; 0 on all others, and a factor of 1 where `rollout_is` has factors."""
        super()._compute_advantage(self._of_rl(batch), metrics)
        if self.hidden:
            names = "advantages", "returns", "token_level_rewards", "rollout_is_weights"
            made = self._get(self._of_rl(batch), *names)
            value = dict.fromkeys(made, 0.0) | {"rollout_is_weights": 1.0}
            columns = {name: [torch.full((len(mask),), value[name]) for mask in self.hidden.values()] for name in made}
            self._put(batch.select_keys(list(self.hidden)), columns)
        return batch

    # ------------------------------ optimizer steps ------------------------------

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """VeRL's update, once for each optimizer step; after the first, gamma is that of the current policy."""
        whole = self._step(batch)
        metrics.update(row_metrics(self.step_rows, whole.rows))
        self._warn_of_plain_rl(whole)
        self._require_equal_prompts(batch)
        size = len(batch) // self.mini_batches
        steps = [whole.part(start, start + size) for start in range(0, len(batch), size)] * self.epochs
        logged = [self._optimizer_step(step, first=number == 0) for number, step in enumerate(steps)]
        metrics.update(reduce_metrics({name: [one[name] for one in logged] for name in logged[0]}))
        return batch

    def _step(self, batch: KVBatchMeta) -> Step:
        """All rows of the batch, at which the policy that sampled them is the current one."""
        names = ["prompts", "responses", "response_mask", "old_log_probs", "rm_scores", "ref_log_prob"]
        columns = self._get(batch, *names, *(["extra_fields"] if penalized(self.config) else []))
        own = zip(batch.keys, columns["response_mask"], strict=True)
        masks, old = [self.hidden.get(key, mask) for key, mask in own], columns["old_log_probs"]
        scores, index = finite_sums(columns["rm_scores"]), self.step_rows.index(batch.keys)
        if "extra_fields" in columns:
            scores = scores_of_function(scores, columns["extra_fields"])
        threshold = torch.full_like(scores, self.settings.correct_above)
        threshold[index.reference] = 0.5  # the buffer holds verdicts, 0 or 1
        compares = self.method.compares_with_reference
        rows = RegularizationRows(
            index=index,
            log_probs=row_sums(old, masks),
            rewards=(scores > threshold).double(),
            reference_log_probs=row_sums(columns["ref_log_prob"], masks) if compares else None,
            tokens=lengths(masks) if self.settings.length == "token-mean" else None,
        )
        return Step(
            batch=batch,
            rows=rows,
            masks=masks,
            old_log_probs=old,
            added=torch.tensor([self.step_rows.added(key) for key in batch.keys]),
            sequences=[
                (prompt.numpy().tobytes(), response.numpy().tobytes())
                for prompt, response in zip(columns["prompts"], columns["responses"], strict=True)
            ],
        )

    def _warn_of_plain_rl(self, step: Step) -> None:
        """Warn of a step without any weight. Raises InputError for `IDLE_STEPS` of them in a row."""
        self.idle = 0 if self._weights(step).any() else self.idle + 1
        if self.idle:
            prompts = {member.prompt for member in self.step_rows.members.values()}
            whole = max(map(len, step.rows.index))
            reason = f"{len(prompts)} prompts to regularize, {whole} with all of their responses, none with a weight"
            logger.warning(f"cokl: step {self.global_steps} is plain RL: {reason} ({self.idle} in a row)")
            if self.idle == IDLE_STEPS:
                raise InputError(f"{IDLE_STEPS} steps in a row were plain RL; in the last one: {reason}")

    def _require_equal_prompts(self, batch: KVBatchMeta) -> None:
        """Raises InputError if responses to one prompt answer different tokens."""
        seen: dict[int, Tensor] = {}
        for key, tokens in zip(batch.keys, self._get(batch, "prompts")["prompts"], strict=True):
            member = self.step_rows.member(key)
            if member and not torch.equal(first := seen.setdefault(member.prompt, tokens), tokens):
                raise InputError(
                    f"a prompt has {len(first)} tokens with one response and {len(tokens)} or others with another: "
                    "build the buffer with the chat template, tools and system prompt of this run, and shorten none"
                )

    def _optimizer_step(self, step: Step, first: bool) -> dict[str, Any]:
        """VeRL's update on these rows; returns what it logs, with the regularizer's part set apart.

        first: whether the policy is still the one that sampled.
        """
        if not first:
            step = self._under_current_policy(step)
        actor, weights = self.config.actor_rollout_ref.actor, self._weights(step)
        made = self._get(step.batch, "advantages", "rollout_is_weights")
        advantages = made["advantages"]
        factors = made.get("rollout_is_weights", [torch.ones(len(mask)) for mask in step.masks])
        aggregation = Aggregation(actor.loss_agg_mode, len(step.batch), self.rl_rows, actor.loss_scale_factor or 1.0)
        columns = {
            "advantages": regularized_advantages(advantages, step.masks, weights, step.added, aggregation, factors),
            "response_mask": step.masks,
        }
        if not first:
            columns["old_log_probs"] = step.old_log_probs
        metrics: dict[str, Any] = {}
        super()._update_actor(self._put(step.batch, columns), metrics)
        self._put(step.batch, {"advantages": advantages})
        loss, tokens = float(weights @ step.rows.log_probs), lengths(step.masks)
        counted = loss if actor.policy_loss.loss_mode in ("gpg", "cispo") else float(weights.double() @ tokens)
        without_added(metrics, counted, loss, tokens, step.added)
        weighed = [advantage * factor for advantage, factor in zip(advantages, factors, strict=True)]
        share = gradient_share(weighed, step.masks, weights, step.added, step.sequences, aggregation)
        return metrics | {"cokl/loss": loss, "cokl/gradient_share": share}

    def _under_current_policy(self, step: Step) -> Step:
        """The step with the added rows' log-probabilities taken anew, after the policy has moved.

        VeRL's pass wants a multiple of rows, so that others stand in for those that lack.
        """
        added, others = ([place for place, flag in enumerate(step.added) if flag == kind] for kind in (True, False))
        if not added:
            return _moved(step, step.old_log_probs)
        asked = [*added, *others[: -len(added) % row_multiple(self.config)]]
        chosen = step.batch.select_keys([step.batch.keys[place] for place in asked])
        temperature = self.config.actor_rollout_ref.rollout.temperature
        chosen.extra_info.update(
            temperature=temperature, calculate_entropy=False, compute_loss=False, no_lora_adapter=False
        )
        self.actor_rollout_wg.compute_log_prob(chosen)
        data = tq.kv_batch_get(
            keys=chosen.keys, partition_id=chosen.partition_id, select_fields=["log_probs", "response_mask"]
        )
        now = response_from_nested(data["log_probs"], data["response_mask"]).unbind()
        log_probs = list(step.old_log_probs)
        for place, row in zip(added, now, strict=False):
            log_probs[place] = row
        return _moved(step, log_probs)

    def _weights(self, step: Step) -> Tensor:
        """(R,): on the rows' log-likelihoods."""
        return self.method.row_weights(step.rows, self.settings.beta, SurrogateConfig())

    # ------------------------------ VeRL's queue ------------------------------

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


def _moved(step: Step, log_probs: list[Tensor]) -> Step:
    """The step after the policy has moved: weights are of the new one, and ratios those to the one that sampled.

    log_probs: as `Step.old_log_probs`, with those of the added rows under the current policy.
    """
    now = row_sums(log_probs, step.masks)
    rows = replace(step.rows, log_probs=now, behavior_log_probs=step.rows.log_probs)
    return replace(step, rows=rows, old_log_probs=log_probs)
