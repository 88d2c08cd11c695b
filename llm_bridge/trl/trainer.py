"""TRL's GRPOTrainer with a regularizer: rows of its own in each micro-batch, beside TRL's own loss.

A generation of TRL's serves `steps_per_generation / gradient_accumulation_steps` optimizer steps, `num_iterations`
times. The regularized prompts of each of these steps are drawn from the buffer when TRL generates, and their fresh
responses are sampled by the same engine. At its start an optimizer step weighs its whole groups once, by the policy of
the moment (Eq. 15). Its rows with a weight are then spread over the micro-batches and processes, a like number to each:
a sum of weighted log-likelihoods is exact under any split. With `cokl_prompts="training"` the batch's own prompts are
regularized: their responses carry a weight each through TRL's micro-batches, and the cached ones are the only added
rows.

TRL's loss, advantages and metrics are of its own rows alone. An evaluation is TRL's.

Assumptions beyond the paper: those of `cokl.groups`. Where TRL regenerates after a resume in the middle of a generation
that serves several optimizer steps, so do the regularizer's rows, with prompts that follow in the buffer's order.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object, is_peft_model
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import get_config_model_id, use_adapter

import cokl
from cokl import methods
from cokl.arrays import RowWeights
from cokl.groups import row_surrogate_loss
from cokl.support.code import code_of
from cokl.support.errors import InputError
from cokl.support.options import require
from llm_bridge.buffer.groups import Buffer, CachedGroup, DrawOrder, model_fingerprint, prompt_key
from llm_bridge.equal_rows import squared_gradient
from llm_bridge.trl.answers import Answer, cached_answers, rewards_of, row_of, sampled, totals, truth_of
from llm_bridge.trl.checks import of_config, of_trainer, refuse
from llm_bridge.trl.config import CoKLGRPOConfig

logger = logging.getLogger(__name__)
IDLE_STEPS = 10
"""Steps in a row without any weight after which a run ends."""


@dataclass(frozen=True, eq=False)
class Minibatch:
    """The N regularized prompts of an optimizer step, with C cached and G fresh responses each, of all processes.

    fresh: N * G, those of a prompt after each other; none if the method weights none. rewards: (N, G), verdicts.
    behavior, reference: (N, G), log-likelihoods in nats under the policy that sampled, and under the starting model if
    the method compares with it.
    """

    groups: Sequence[CachedGroup]
    fresh: Sequence[Answer]
    rewards: Tensor
    behavior: Tensor
    reference: Tensor | None


class CoKLGRPOTrainer(GRPOTrainer):
    """GRPO plus beta times a regularizer (Eqs. 18 and 20). Reward functions, engine, model and data are the user's.

    Args:
        model: a folder or a name on the hub, or a model that was loaded from one: its buffer is known by the weights
            that lie there.
        reward_funcs: TRL's; they also judge answers to the buffer's prompts, of which `answers.row_of` says what they
            are given.
        args: a CoKLGRPOConfig.
        *others: TRL's further arguments.
        **options: Likewise.

    Raises:
        InputError: settings, a buffer or reward functions with which the regularizer would be wrong, or have no
            effect; all that is found, before training.
    """

    def __init__(self, model: Any, reward_funcs: Any = None, args: Any = None, *others: Any, **options: Any):
        got = f"{type(args).__name__}; with GRPOConfig's options it has cokl_buffer, cokl_method, ..."
        require(isinstance(args, CoKLGRPOConfig), "args", "a CoKLGRPOConfig", got)
        self.method = methods.get(args.cokl_method)
        name = model if isinstance(model, str) else get_config_model_id(model.config)
        require(bool(name), "model", "one that was loaded from a folder or the hub, by whose weights", "one without")
        buffer = Buffer.load(Path(args.cokl_buffer), model_fingerprint(name))
        self.groups = (buffer.filtered() if self.method.filtered else buffer).groups
        refuse(of_config(args, self.method, buffer, self.groups, options))
        beta = args.beta
        if self.method.compares_with_reference and not beta:
            args.beta = 1.0  # has TRL bring the reference policy
        super().__init__(model, reward_funcs, args, *others, **options)
        args.beta = self.beta = beta
        require(not self._is_vlm, "processing_class", "a tokenizer: the buffer's prompts are texts", "a processor")
        self.truth = truth_of(self.train_dataset.column_names)
        refuse(of_trainer(self))
        code = f"{self.method.name}{code_of(type(self.method.regularizer)) or ''}"
        content = hashlib.sha256(code.encode() + Path(args.cokl_buffer).read_bytes()).hexdigest()
        training = args.cokl_prompts == "training"
        self.cache = {group.key: group for group in reversed(self.groups)} if training else {}
        self.order = DrawOrder(0 if training else len(self.groups), args.seed, content=content)
        self.idle = 0
        self.minibatches: list[Minibatch] = []
        args.take()  # after all that may be refused
        self.not_regularized = math.nan

    # ------------------------------ once a generation ------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's batch, and beside it the regularized prompts of the optimizer steps that it serves."""
        output = super()._generate_and_score_completions(inputs)
        if self.model.training and self.cache:
            output["cokl_weights"] = self._weigh_batch(inputs, output)
        elif self.model.training:
            self.minibatches = self._draw()
        return output

    def _calculate_rewards(self, *given: Any) -> Tensor:
        rewards = super()._calculate_rewards(*given)
        self.scores = totals(self, rewards)
        return rewards

    def _draw(self) -> list[Minibatch]:
        """One minibatch for each optimizer step, from the buffer; a process samples and scores its share of prompts."""
        size, processes = self.args.cokl_kl_prompts, self.accelerator.num_processes
        steps = self.args.steps_per_generation // self.args.gradient_accumulation_steps
        groups = [self._brought(self.groups[place]) for place in self.order.draw(size * steps)]
        if "rollout" not in self.method.streams():
            return [self._minibatch(groups[at : at + size], [], torch.empty(0)) for at in range(0, len(groups), size)]
        share = len(groups) // processes
        start = self.accelerator.process_index * share
        own = [group for group in groups[start : start + share] for _ in range(self.num_generations)]
        answers = sampled(self, [group.prompt_ids.tolist() for group in own])
        ids = [answer.response_ids for answer in answers]
        asked = [row_of(group, self.truth) for group in own]
        scores = rewards_of(self, asked, [one.prompt_ids for one in answers], ids)
        whole = self._minibatch(groups, answers, scores)
        parts = []
        for at in range(0, len(groups), size):
            here, rows = slice(at, at + size), slice(at * self.num_generations, (at + size) * self.num_generations)
            compared = None if whole.reference is None else whole.reference[here]
            parts.append(
                Minibatch(groups[here], whole.fresh[rows], whole.rewards[here], whole.behavior[here], compared)
            )
        return parts

    def _weigh_batch(self, inputs: list[dict[str, Any]], output: dict[str, Any]) -> Tensor:
        """(B,): the weights of this process's responses, whose prompts are the regularized ones where they are known.

        TRL has the responses to a prompt one after the other, over all processes.
        """
        written = output["completion_mask"] * output.get("tool_mask", 1)
        columns = (output[name] for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask"))
        answers = [
            Answer(prompt[asked.bool()].tolist(), ids[kept.bool()].tolist(), mask[kept.bool()].tolist())
            for prompt, asked, ids, kept, mask in zip(*columns, written, strict=True)
        ]
        keys = gather_object([prompt_key(row["prompt"], row.get(self.truth, "")) for row in inputs])
        found = [self.cache.get(key) for key in keys[:: self.num_generations]]
        known = [place for place, group in enumerate(found) if group is not None]
        self.not_regularized = 1 - len(known) / len(found)
        groups = [self._brought(group) for group in found if group is not None]
        minibatch = self._minibatch(groups, answers, self.scores, known)
        self.minibatches = [minibatch]
        weights = torch.zeros(len(found), self.num_generations, dtype=torch.float64)
        if known and "rollout" in self.method.streams():
            weights[known] = self._weights(minibatch, minibatch.behavior).rollout
        start = self.accelerator.process_index * len(inputs)
        return weights.flatten()[start : start + len(inputs)].to(output["advantages"])

    def _minibatch(
        self, groups: list[CachedGroup], answers: list[Answer], scores: Tensor, known: list[int] | None = None
    ) -> Minibatch:
        """Of this process's fresh answers and the scores of all. known: which prompts of these are the groups'."""
        if "rollout" not in self.method.streams():
            nothing = torch.zeros(len(groups), 0, dtype=torch.float64)
            return Minibatch(groups, (), nothing, nothing, None)
        every = gather_object(answers)
        places = range(len(groups)) if known is None else known
        table = torch.tensor(list(places), dtype=torch.long)
        columns = [(scores > self.args.cokl_correct_above).double(), self._scored(answers)]
        if self.method.compares_with_reference:
            columns.append(self._scored(answers, reference=True))
        tables = [column.view(-1, self.num_generations)[table] for column in columns]
        fresh = [every[place * self.num_generations + n] for place in places for n in range(self.num_generations)]
        return Minibatch(groups, fresh, *tables, *[None] * (3 - len(tables)))

    def _brought(self, group: CachedGroup) -> CachedGroup:
        """The cached responses that a prompt brings, another draw in each step."""
        count, seed = self.args.cokl_cached_per_prompt, [self.args.seed, self.state.global_step]
        return group.drawn(count, seed, self.method.blind_to_wrong_cached) if count else group

    # ------------------------------ an optimizer step ------------------------------

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """TRL's, and in training this micro-batch's share of the regularizer's."""
        loss = super()._compute_loss(model, inputs)
        if not self.model.training:
            return loss
        own, mask = self.token_log_probs, inputs["completion_mask"] * inputs.get("tool_mask", 1)
        micro = self._step % self.args.gradient_accumulation_steps
        if micro == 0:
            self._start_step()
        of_tokens = torch.autograd.grad(loss, own, retain_graph=True)[0].double().cpu() * mask.cpu()
        for prompt, response, gradient in zip(inputs["prompt_ids"], inputs["completion_ids"], of_tokens, strict=True):
            self.gradients.append(((*prompt.tolist(), -1, *response.tolist()), gradient))
        answers, weights = self._share(micro)
        added = loss.new_zeros(())
        if answers:
            log_probs = self._log_likelihoods(model, answers)
            added = row_surrogate_loss(weights.to(log_probs), log_probs)
        if "cokl_weights" in inputs:
            added = added + row_surrogate_loss(inputs["cokl_weights"], (own * mask).sum(-1))
        self.loss += added.detach().double().cpu()
        if micro == self.args.gradient_accumulation_steps - 1:
            self._log_step()
        return loss + added * self.accelerator.num_processes  # of whose gradients the mean is taken

    def _get_per_token_logps_and_entropies(self, *given: Any, **named: Any) -> Any:
        """TRL's, which keeps the last log-probabilities: in `_compute_loss` those of TRL's rows, with their graph."""
        found = super()._get_per_token_logps_and_entropies(*given, **named)
        self.token_log_probs = found[0]
        return found

    def _start_step(self) -> None:
        """Weigh the whole groups of the optimizer step that begins."""
        done = self._step % (self.args.steps_per_generation * self.num_iterations)
        part = done % self.args.steps_per_generation // self.args.gradient_accumulation_steps
        minibatch = self.minibatches[part]
        now = minibatch.behavior
        if done and minibatch.fresh:
            share = len(minibatch.fresh) // self.accelerator.num_processes
            start = self.accelerator.process_index * share
            now = self._scored(minibatch.fresh[start : start + share]).view_as(now)
        streams, weights = self.method.streams(), self._weights(minibatch, now)
        groups = minibatch.groups if "reference" in streams else ()
        cached = [answer for group in groups for answer in cached_answers(group)]
        fresh = [*zip(minibatch.fresh, weights.rollout.flatten().tolist(), strict=True)]
        brought = [*zip(cached, weights.reference.flatten().tolist(), strict=True)] if cached else []
        self.rows = [(answer, weight) for answer, weight in brought + fresh * (not self.cache) if weight]
        self.square = squared_gradient(
            ((*answer.prompt_ids, -1, *answer.response_ids), weight * torch.tensor(answer.mask, dtype=torch.float64))
            for answer, weight in brought + fresh
        )
        self.gradients: list[tuple[tuple[int, ...], Tensor]] = []
        self.loss = torch.zeros((), dtype=torch.float64)
        logged = {"kl_rows": float(len(cached) + len(fresh))}
        if self.cache:
            logged["not_regularized"] = self.not_regularized
        if minibatch.fresh:
            logged["reward_mean"] = float(minibatch.rewards.mean())
            logged["zero_correct"] = 1 - float(minibatch.rewards.amax(1).mean())
        for name, value in logged.items():
            self._metrics["train"][f"cokl/{name}"].append(value)
        self._warn_of_plain_rl(any(weight for _, weight in brought + fresh), len(minibatch.groups))

    def _weights(self, minibatch: Minibatch, log_probs: Tensor) -> RowWeights:
        """On the log-likelihoods of whole groups. log_probs: (N, G), of the fresh ones under the policy of now."""
        groups, streams = minibatch.groups, self.method.streams()
        if not groups:
            return RowWeights(log_probs, log_probs)
        means = self.args.cokl_length == "token-mean"
        brings = "reference" in streams
        written = [[float(mask.sum()) for mask in group.masks] for group in groups]
        fresh = torch.tensor([float(sum(answer.mask)) for answer in minibatch.fresh], dtype=torch.float64)
        return cokl.weights(
            log_probs,
            minibatch.rewards,
            torch.tensor([group.rewards.tolist() for group in groups], dtype=torch.float64) if brings else None,
            method=self.method.name,
            beta=self.args.cokl_beta,
            behavior_log_probs=minibatch.behavior,
            reference_log_probs=minibatch.reference,
            lengths=fresh.view_as(log_probs) if means else None,
            cached_lengths=torch.tensor(written, dtype=torch.float64) if means and brings else None,
        )

    def _share(self, micro: int) -> tuple[list[Answer], Tensor]:
        """The rows of this process in a micro-batch, and their weights, (R,): as many as in every other one.

        Where they do not suffice, one of weight 0 stands in: models whose parameters are spread over processes need the
        same passes in each.
        """
        parts = self.args.gradient_accumulation_steps * self.accelerator.num_processes
        first = micro * self.accelerator.num_processes + self.accelerator.process_index
        places = range(first, -(-len(self.rows) // parts) * parts, parts)
        own = [self.rows[place] if place < len(self.rows) else (self.rows[0][0], 0.0) for place in places]
        return [answer for answer, _ in own], torch.tensor([weight for _, weight in own])

    def _log_step(self) -> None:
        """What the optimizer step's micro-batches have added up, of all processes."""
        parts = torch.tensor([float(self.loss), squared_gradient(self.gradients)], device=self.accelerator.device)
        loss, of_rl = self.accelerator.reduce(parts, reduction="sum").tolist()
        of_rl /= self.accelerator.num_processes**2  # the mean of the processes' gradients is what is applied
        self._metrics["train"]["cokl/loss"].append(loss)
        if of_rl + self.square:
            self._metrics["train"]["cokl/gradient_share"].append(self.square / (of_rl + self.square))

    def _warn_of_plain_rl(self, weighed: bool, prompts: int) -> None:
        """Warn of a step without any weight. Raises InputError for `IDLE_STEPS` of them in a row."""
        self.idle = 0 if weighed else self.idle + 1
        if self.idle:
            reason = f"{prompts} prompts to regularize, none with a weight"
            logger.warning(f"cokl: step {self.state.global_step + 1} is plain RL: {reason} ({self.idle} in a row)")
            if self.idle == IDLE_STEPS:
                raise InputError(f"{IDLE_STEPS} steps in a row were plain RL; in the last one: {reason}")

    # ------------------------------ log-likelihoods ------------------------------

    @torch.no_grad()
    def _scored(self, answers: Sequence[Answer], reference: bool = False) -> Tensor:
        """(R,): log-likelihoods of all processes' answers, of which `answers` are this one's.

        reference: under the starting model.
        """
        policy = self.accelerator.unwrap_model(self.model)
        adapters = reference and is_peft_model(policy)
        model = self.ref_model if reference and not adapters else self.model
        name = "ref" if adapters and "ref" in policy.peft_config else None
        with (
            disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
            use_adapter(policy, adapter_name=name) if adapters else nullcontext(),
        ):
            return self.accelerator.gather(self._log_likelihoods(model, answers)).double().cpu()

    def _log_likelihoods(self, model: Any, answers: Sequence[Answer]) -> Tensor:
        """(R,): in nats, over the tokens that the policy wrote, by TRL's pass in chunks and at its temperature."""
        device, pad = self.accelerator.device, self._tokenizer.pad_token_id
        prompts, responses = ([torch.tensor(answer[n], device=device) for answer in answers] for n in (0, 1))
        written = [torch.tensor(answer.mask, device=device) for answer in answers]
        asked = pad_sequence(prompts, batch_first=True, padding_value=pad, padding_side="left")
        before = pad_sequence([torch.ones_like(row) for row in prompts], batch_first=True, padding_side="left")
        said = pad_sequence(responses, batch_first=True, padding_value=pad)
        after = pad_sequence([torch.ones_like(row) for row in responses], batch_first=True)
        log_probs, _, _ = self._get_per_token_logps_and_entropies(
            model,
            torch.cat([asked, said], 1),
            torch.cat([before, after], 1),
            said.shape[1],
            batch_size=self.args.per_device_train_batch_size,
        )
        return (log_probs * pad_sequence(written, batch_first=True)).sum(-1)

    # ------------------------------ checkpoints ------------------------------

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """TRL's checkpoint, with the position in the buffer, saved before the trainer's state completes it."""
        if self.args.should_save:
            self.order.save(Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}")
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Raises InputError if the checkpoint holds no position in this buffer."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self.order.resume(Path(checkpoint))
