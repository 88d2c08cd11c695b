"""VeRL's synchronous trainer with a second stream: a regularization minibatch beside the RL batch, or made of it.

Its prompts are drawn from the buffer, or are the RL batch's own (`cokl.prompts`). These bring their cached responses,
found by `cokl.responses.buffer.prompt_key`; their fresh ones are the RL batch's rows, with rollouts, verdicts and
log-probabilities as they are, which then carry a weight beside their advantage.

The added rows go through VeRL's own rollouts, reward function, log-probabilities and actor update; here is only where
the two streams part. What VeRL is asked for is in `streams` and `join`, the weights are `Method.row_weights`, taken
over whole groups before micro-batching, and the actor's loss is in `loss`. A group that lost a response to a failed
rollout is left out of its step. VeRL's mini-batch size counts RL prompts: the added rows are spread over the
mini-batches, whole groups each.

With several optimizer steps per rollout a learning-rate schedule is refused, since VeRL would advance it once per
optimizer step.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import reduce_metrics
from verl.workers.utils.padding import response_from_nested

from cokl.groups import RegularizationRows, conditional_kl
from cokl.responses.buffer import CachedGroup, DrawOrder, prompt_key
from cokl.support.errors import InputError
from llm_bridge.rewards.judge import Judge, load_function
from llm_bridge.trainer.base import RewardedTrainer, bring_reference
from llm_bridge.trainer.buffers import regularization
from llm_bridge.trainer.join import join
from llm_bridge.trainer.loss import ADDED, RL_BATCH_SIZE, SQUARED_GRADIENTS, WEIGHT, joint_loss
from llm_bridge.trainer.schedule import BetaSchedule
from llm_bridge.trainer.streams import Minibatch, requests, uid_of

_NOTHING_CACHED = CachedGroup([], "", "", np.array([]), [], [], np.array([]))
"""Stands for a training prompt that is regularized by a method without any use for cached responses."""
_Step = Callable[[KVBatchMeta, dict], KVBatchMeta]


@register_trainer("cokl")
class CoKLTrainer(PPOTrainerSync):
    """RL plus a method that weights responses to the buffer's prompts. Model, data and rewards are the user's."""

    def __init__(self, config: DictConfig) -> None:
        """config: VeRL's whole configuration; by this name, since VeRL passes it as a keyword."""
        config.trainer.v1.trainer_mode = "sync"  # VeRL compares with the name of the trainer that this one extends
        super().__init__(config)
        self.settings, buffers, self.shape = regularization(config)
        settings, self.method = self.settings, self.settings.method
        groups = [(buffer.filtered() if self.method.filtered else buffer).groups for buffer in buffers]
        self.drawn = groups[0] if settings.draws else ()
        self.cache = {group.key: group for group in reversed(groups[-1])} if settings.looks_training_up else {}
        content = "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in settings.files)
        self.order = DrawOrder(len(self.drawn), settings.seed, content=content)
        self.schedule = BetaSchedule(settings.schedule, settings.beta, settings.beta_end, settings.kl_target)
        self.minibatch = Minibatch({}, 0)
        self.weighed = False
        # Of the step's regularized prompts, by number: the fraction of correct among all that is cached, smoothed.
        self.solved: list[float] = []
        # Sequence log-likelihoods in nats of the fresh regularized rows, by key.
        self.reference_log_probs: dict[str, float] = {}
        self.use_reference_policy = self.method.compares_with_reference
        actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
        self.epochs = actor.ppo_epochs
        with open_dict(config):
            actor.ppo_mini_batch_size = self.shape.mini_batch // rollout.n
            actor.ppo_epochs = 1

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        if self.use_reference_policy:
            bring_reference(self)

    def _setup(self) -> None:
        super()._setup()
        self.actor_rollout_wg.set_loss_fn(self.actor_loss())

    def actor_loss(self) -> Callable[..., Any]:
        """What the actor's workers minimize: VeRL's own loss on the RL rows and the regularizer's."""
        return partial(joint_loss, omega_conf_to_dataclass(self.config.actor_rollout_ref.actor))

    # ------------------------------ one batch of prompts ------------------------------

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        """VeRL's prompts, and what the regularization minibatch asks for beside them."""
        batch = super()._next_train_batch(num_prompts)
        rollout = self.config.actor_rollout_ref.rollout
        training = self._cached_by_uid(batch) if self.settings.regularizes_training else {}
        groups = [self.drawn[index] for index in self.order.draw(self.settings.kl_prompts)]
        everything = [*groups, *[group for group in training.values() if group is not None]]
        self.solved = [(group.rewards.sum() + 0.5) / (len(group.rewards) + 1) for group in everything]
        if not self.weighed:
            self._check_judge(groups, everything[len(groups) :])
            self._check_template(groups)
        brought = iter([self._brought(prompt, group) for prompt, group in enumerate(everything)])
        rows, self.minibatch = requests(
            [next(brought) for _ in groups],
            {uid: None if group is None else next(brought) for uid, group in training.items()},
            self.method.streams(),
            rollout.n,
            self.global_steps,
            self._judged_columns(),
        )
        defaults = {"agent_name": rollout.agent.default_agent_loop, "__rollout_n__": rollout.n}
        return join(batch, rows, defaults)

    def _judged_columns(self) -> dict[str, Any]:
        """What has VeRL answer a drawn prompt as any other, and judge the answer by `cokl.judge` if there is one."""
        settings = self.settings
        if not settings.judge:
            return {}
        loop = self.config.actor_rollout_ref.rollout.agent.default_agent_loop
        judge = {"function": settings.judge, "key": settings.judge_key, "options": settings.judge_kwargs, "loop": loop}
        return {"agent_name": "judged", "judge": judge}

    def _check_judge(self, drawn: Sequence[CachedGroup], training: Sequence[CachedGroup]) -> None:
        """Raises InputError if whoever judges a prompt's fresh responses judges a cached one otherwise than is stored.

        A reward function that needs a reward model is not asked.
        """
        settings, custom = self.settings, self.config.reward.custom_reward_function
        own = run = None
        if custom.path and not self.config.reward.reward_model.enable:
            options = dict(custom.get("reward_kwargs") or {})
            run = Judge(load_function(f"{custom.path}:{custom.name}"), "score", options, settings.correct_above)
        if settings.judge:
            function = load_function(settings.judge)
            own = Judge(function, settings.judge_key, settings.judge_kwargs, settings.correct_above)
        for judge, groups in ((own or run, drawn), (run, training)):
            if judge is None or "rollout" not in self.method.streams():
                continue
            for group in groups:
                for ids, stored in zip(group.response_ids, group.rewards, strict=True):
                    text = self.tokenizer.decode(ids, skip_special_tokens=True)
                    given = asyncio.run(judge.score(text, group.data_source, group.ground_truth, group.extra_info))
                    if (given > judge.threshold) != bool(stored):
                        verdict = ("wrong", "correct")[int(stored)]
                        raise InputError(
                            f"a cached response is stored as {verdict} and this run's judge gives it {given:g}, with "
                            f"cokl.correct_above={judge.threshold:g}: expected the judge that the buffer was made with"
                        )

    def _check_template(self, drawn: Sequence[CachedGroup]) -> None:
        """Raises InputError if this run's chat template makes other tokens of a prompt than the buffer has, under a
        method without fresh responses, whose prompts would tell. Agent loops that may add tools are not compared.
        """
        loop = self.config.actor_rollout_ref.rollout.agent.default_agent_loop
        if "rollout" in self.method.streams() or loop not in ("single_turn_agent", "seeded"):
            return
        options = self.config.data.get("apply_chat_template_kwargs") or {}
        for group in drawn:
            text = self.tokenizer.apply_chat_template(
                group.prompt, add_generation_prompt=True, tokenize=False, **options
            )
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            self._require_same_prompt(torch.tensor(group.prompt_ids), torch.tensor(ids))

    @staticmethod
    def _require_same_prompt(asked: Tensor, tokens: Tensor) -> None:
        if not torch.equal(asked, tokens):
            raise InputError(
                f"a prompt has {len(asked)} tokens with one response and {len(tokens)} or others with another: build "
                f"the buffer with the chat template, its arguments, tools and system prompt of this run, and shorten "
                f"no prompt; `cokl llm buffer` gives enable_thinking=True, or False with --no-thinking"
            )

    def _cached_by_uid(self, batch: TensorDict) -> dict[str, CachedGroup | None]:
        """What is cached for each of VeRL's prompts; None for one that is not regularized.

        Raises InputError for prompts without a ground truth, which are not to be told from others.
        """
        columns = [[value.data for value in batch.get(name).unbind(0)] for name in ("uid", "raw_prompt")]
        if not self.settings.looks_training_up:
            return dict.fromkeys(map(str, columns[0]), _NOTHING_CACHED)
        if "reward_model" not in batch.keys():  # noqa: SIM118  a TensorDict is no container of names
            raise InputError("data.train_files: expected a column reward_model, whose ground_truth names prompts")
        answers = [value.data.get("ground_truth") for value in batch.get("reward_model").unbind(0)]
        return {
            str(uid): self.cache.get(prompt_key(messages, answer))
            for uid, messages, answer in zip(*columns, answers, strict=True)
        }

    def _brought(self, prompt: int, group: CachedGroup) -> CachedGroup:
        """The cached responses that the step's prompt number `prompt` brings, another draw in each step."""
        count = self.settings.cached_per_prompt
        seed = [self.settings.seed, self.global_steps, prompt]
        return group.drawn(count, seed, self.method.blind_to_wrong_cached) if count else group

    def _step_once(self, metrics: dict, timing_raw: dict, sample_batch_size: int) -> KVBatchMeta:
        return super()._step_once(metrics, timing_raw, sample_batch_size + self.minibatch.asked())

    # ------------------------------ the two streams apart ------------------------------

    def _apart(self, batch: KVBatchMeta) -> tuple[KVBatchMeta, KVBatchMeta]:
        """RL rows and added rows; padding stands in for the missing rows of either."""
        added = self.minibatch.added(batch.keys)
        padding = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if tag.get("is_padding", False)]
        added += padding[: self.shape.added - len(added)]
        chosen = set(added)
        return batch.select_keys([key for key in batch.keys if key not in chosen]), batch.select_keys(added)

    def _run_apart(self, step: _Step, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """A step of VeRL's on either stream, of which `metrics` sees the RL rows only."""
        if not self.minibatch.added(batch.keys):  # padding at most, which VeRL leaves out of its metrics itself
            return replace(batch, fields=step(batch, metrics).fields)
        rl, added = self._apart(batch)
        step(added, {})
        return replace(batch, fields=step(rl, metrics).fields)

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        return self._run_apart(super()._compute_old_log_prob, batch, metrics)

    def _compute_reward_colocate(self, batch: KVBatchMeta, metrics: dict | None = None) -> KVBatchMeta:
        """Cached responses keep the verdict that they were stored with, and judged ones their judge's."""
        scored = set(self.minibatch.added(batch.keys, None if self.settings.judge else "reference"))
        super()._compute_reward_colocate(batch.select_keys([key for key in batch.keys if key not in scored]), metrics)
        return batch

    def _compute_metrics(self, batch: KVBatchMeta, metrics, timing_raw, global_steps, epoch) -> None:
        """VeRL's metrics of the RL rows, except that speed and time count all rows."""
        everything: dict[str, Any] = {}
        super()._compute_metrics(batch, everything, timing_raw, global_steps, epoch)
        super()._compute_metrics(self._apart(batch)[0], metrics, timing_raw, global_steps, epoch)
        metrics.update({name: everything[name] for name in everything if name.startswith(("perf/", "timing"))})

    # ------------------------------ weights ------------------------------

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Of the regularized rollouts only: no other row is compared with the reference."""
        fresh = self.minibatch.regularized(batch.keys, "rollout")
        compute = self.ref_policy_wg.compute_ref_log_prob
        log_probs = self._log_likelihoods(batch, fresh, self.shape.rollout + self.shape.shared, compute)
        self.reference_log_probs = dict(zip(fresh, log_probs.tolist(), strict=True))
        return batch

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """VeRL's advantages; then the rows are indexed, logged and marked for the loss."""
        batch = self._run_apart(super()._compute_advantage, batch, metrics)
        columns = ["old_log_probs", "rm_scores", "loss_mask"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=columns)
        self.beta = self.schedule.begin(self.global_steps, self.total_training_steps)
        self.rows = self._indexed_rows(batch, data)
        metrics.update(self._row_metrics(batch))
        if not self.weighed:
            self._check_first_step(batch, metrics["cokl/kl_rows"])
        self.weighed = True
        self.schedule.observe(metrics.get("cokl/conditional_kl", math.nan))
        return self._mark_added_rows(batch, data["loss_mask"])

    def _check_first_step(self, batch: KVBatchMeta, weighed_rows: float) -> None:
        """Raises InputError if nothing is regularized, or if responses to one prompt answer different tokens."""
        if not (self.minibatch.origins or weighed_rows):
            raise InputError(
                f"none of this step's {len(self.minibatch.training)} training prompts has a correct response in "
                f"{self.settings.training_file}: expected responses to data.train_files, with the same ground truths"
            )
        if not weighed_rows:
            raise InputError(
                f"no group of cokl.kl_prompts came back complete, so nothing is regularized: expected "
                f"{self.shape.added + self.shape.shared} rows of complete groups; an agent loop may give one output "
                f"per session"
            )
        seen: dict[int, Tensor] = {}
        prompts = {key: number for key in batch.keys if (number := self.minibatch.prompt(key)) is not None}
        data = tq.kv_batch_get(keys=list(prompts), partition_id=batch.partition_id, select_fields=["prompts"])
        for number, tokens in zip(prompts.values(), data["prompts"].unbind(), strict=True):
            self._require_same_prompt(seen.setdefault(number, tokens), tokens)

    def _indexed_rows(self, batch: KVBatchMeta, data: TensorDict) -> RegularizationRows:
        """All rows of the batch, at which the policy that sampled them is the current one."""
        cached, fresh = self.minibatch.cached, self.reference_log_probs
        reference = [fresh.get(key, cached.get(uid_of(key), math.nan)) for key in batch.keys]
        origins = [self.minibatch.origin(key) for key in batch.keys]
        solved = [self.solved[origin.prompt] if origin else math.nan for origin in origins]
        return RegularizationRows(
            index=self.minibatch.index(batch.keys),
            log_probs=_row_sums(data["old_log_probs"], data["loss_mask"]),
            rewards=(_row_sums(data["rm_scores"]) > self.settings.correct_above).double(),
            reference_log_probs=torch.tensor(reference, dtype=torch.float64),
            tokens=_row_sums(data["loss_mask"]),
            reference_accuracy=torch.tensor(solved, dtype=torch.float64),
        )

    def _row_metrics(self, batch: KVBatchMeta) -> dict[str, float]:
        """What the log shows of the regularization minibatch."""
        weighed = [self.rows.index.within(rows.start, rows.stop) for rows in self._mini_batches(batch)]
        tokens = [tag["response_len"] for tag in batch.tags]
        logged = self.minibatch.metrics(batch.keys, self.rows.rewards.tolist(), tokens)
        logged["cokl/kl_rows"] = float(sum(table.numel() for index in weighed for table in index))
        logged["cokl/beta"] = self.beta
        if len(self.method.streams()) == 2:
            logged["cokl/conditional_kl"] = conditional_kl(self.rows)
        return logged

    def _mark_added_rows(self, batch: KVBatchMeta, loss_mask: Tensor) -> KVBatchMeta:
        """Added rows are marked and lose their part in VeRL's token count; their weights come with each step."""
        ours = set(self.minibatch.added(batch.keys))
        added = [key in ours for key in batch.keys]
        masks = [mask * (not flag) for mask, flag in zip(loss_mask.unbind(), added, strict=True)]
        columns = {
            WEIGHT: torch.zeros(len(batch), 1),
            ADDED: torch.tensor(added, dtype=torch.float32)[:, None],
            "loss_mask": torch.nested.as_nested_tensor(masks, layout=torch.jagged),
        }
        fields = TensorDict(columns, batch_size=len(batch))
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    def _log_likelihoods(
        self, batch: KVBatchMeta, keys: list[str], size: int, compute: Callable[[KVBatchMeta], Any]
    ) -> Tensor:
        """Sequence log-likelihoods of `keys` in nats, without gradient; other rows stand in for those missing from
        `size`.
        """
        wanted = set(keys)
        padded = [*keys, *[key for key in batch.keys if key not in wanted][: size - len(keys)]]
        chosen = batch.select_keys(padded)
        temperature = self.config.actor_rollout_ref.rollout.temperature
        chosen.extra_info.update(calculate_entropy=False, compute_loss=False, temperature=temperature)
        compute(chosen)
        data = tq.kv_batch_get(
            keys=padded, partition_id=chosen.partition_id, select_fields=["log_probs", "response_mask"]
        )
        mask = data["response_mask"]
        return _row_sums(response_from_nested(data["log_probs"], mask), mask)[: len(keys)]

    # ------------------------------ optimizer steps ------------------------------

    def _balance_batch(self, batch: KVBatchMeta, metrics, **options) -> KVBatchMeta:
        """Every mini-batch gets its share of RL rows and of whole groups, and is balanced over the ranks by itself.

        Raises InputError for an agent loop that gave several outputs per session.
        """
        if several := [key for key in batch.keys if not key.endswith("_0")]:
            raise InputError(
                f"an agent loop gave {len(several)} outputs beside the first of their sessions: expected one per "
                "session with a regularizer, whose groups have one response per session"
            )
        if self.shape.mini_batches == 1:
            return super()._balance_batch(batch, metrics, **options)
        parts = [
            super(CoKLTrainer, self)._balance_batch(batch.select_keys(keys), metrics, **options)
            for keys in self.minibatch.mini_batches(sorted(batch.keys), self.shape.mini_batches)
        ]
        keys, tags = ([entry for part in parts for entry in getattr(part, name)] for name in ("keys", "tags"))
        return replace(batch, keys=keys, tags=tags)

    def _mini_batches(self, batch: KVBatchMeta) -> list[slice]:
        size = self.shape.mini_batch
        return [slice(start, start + size) for start in range(0, len(batch), size)]

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """One optimizer step per mini-batch and epoch; after the first, gamma is that of the current policy.

        `cokl/loss` is the mean of the steps' losses, as the weights and log-likelihoods here have them; the worker logs
        its own as `actor/cokl/loss`.
        """
        batch.extra_info[RL_BATCH_SIZE] = self.shape.rl // self.shape.mini_batches
        steps: list[dict] = []
        for rows in self._mini_batches(batch) * self.epochs:
            mini_batch = batch.select_keys(batch.keys[rows])
            steps.append({"cokl/loss": self._weigh(mini_batch, rows, moved=bool(steps))})
            super()._update_actor(mini_batch, steps[-1])
            steps[-1] |= _gradient_norms(steps[-1])
        metrics.update(reduce_metrics({name: [step[name] for step in steps] for name in steps[0]}))
        return batch

    def _weigh(self, mini_batch: KVBatchMeta, rows: slice, moved: bool) -> float:
        """Give a mini-batch's rows their weights; its regularization loss.

        rows: which of the batch's they are. moved: whether the policy is another than the one that sampled.
        """
        weighed = replace(self.rows, index=self.rows.index.within(rows.start, rows.stop))
        if moved:
            log_probs = self._current_log_probs(mini_batch, rows.start)
            weighed = replace(weighed, log_probs=log_probs, behavior_log_probs=self.rows.log_probs)
        weights = self.method.row_weights(weighed, self.beta, self.settings.surrogate(), self.settings.length)
        fields = TensorDict({WEIGHT: weights[rows, None].float()}, batch_size=len(mini_batch))
        tq.kv_batch_put(keys=mini_batch.keys, partition_id=mini_batch.partition_id, fields=fields)
        return float(weights @ weighed.log_probs)

    def _current_log_probs(self, mini_batch: KVBatchMeta, start: int) -> Tensor:
        """(R,): the regularized rows of a mini-batch, whose first row is `start`, under the current policy."""
        ours = [row for row, key in enumerate(mini_batch.keys) if self.minibatch.origin(key)]
        keys = [mini_batch.keys[row] for row in ours]
        size = (self.shape.added + self.shape.shared) // self.shape.mini_batches
        log_probs = self.rows.log_probs.clone()
        log_probs[torch.tensor(ours, dtype=torch.long) + start] = self._log_likelihoods(
            mini_batch, keys, size, self.actor_rollout_wg.compute_log_prob
        )
        return log_probs

    # ------------------------------ checkpoints ------------------------------

    def _save_checkpoint(self) -> None:
        """VeRL's checkpoint, with the position in the buffer, saved before VeRL calls the checkpoint complete."""
        folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        self.order.save(folder)
        self.schedule.save(folder)
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        """Raises InputError if the checkpoint holds no position in this buffer."""
        super()._load_checkpoint()
        if self.global_steps:
            folder = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
            if self.config.trainer.resume_mode == "resume_path":
                folder = Path(self.config.trainer.resume_from_path)
            self.order.resume(folder)
            self.schedule.resume(folder)


@register_trainer("cokl_rewarded")
class RewardedCoKLTrainer(CoKLTrainer, RewardedTrainer):
    """The trainer of the experiment's chat stage: CoKL's, with our rewards and validation metrics."""


def _gradient_norms(metrics: dict[str, Any]) -> dict[str, float]:
    """Of both streams' parts of the loss, and the regularizer's share, 0 to 1, of the sum of their squares."""
    rl, added = (float(np.mean(metrics.pop(f"actor/{name}", 0.0))) for name in SQUARED_GRADIENTS)
    share = added / (rl + added) if rl + added else math.nan
    return {"cokl/gradient_rl": rl**0.5, "cokl/gradient_kl": added**0.5, "cokl/gradient_share": share}


def _row_sums(rows: Tensor, mask: Tensor | None = None) -> Tensor:
    """(R,): sums over the tokens of each row of a jagged tensor, of those that the policy wrote if there is a mask."""
    masks: Sequence[Tensor | int] = [1] * len(rows) if mask is None else mask.unbind()
    return torch.stack([(row.double() * kept).sum() for row, kept in zip(rows.unbind(), masks, strict=True)])
