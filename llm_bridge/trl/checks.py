"""What a run of TRL's has to be for the regularizer to be right and to have an effect: every refusal, in one line each.

Assumption beyond the paper: as in `llm_bridge.trainer.checks`, for VeRL, whose reasons are these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from torch import nn
from trl import GRPOTrainer

from cokl.methods import Method
from cokl.support.errors import InputError
from llm_bridge.buffer.groups import Buffer, CachedGroup, prompt_key
from llm_bridge.trl.answers import cached_answers, rewards_of, row_of, truncated, truth_of
from llm_bridge.trl.config import CoKLGRPOConfig

JUDGED_GROUPS = 8
"""Of how many of the buffer's prompts the run's reward functions judge the cached responses again."""


def refuse(refused: Iterator[str]) -> None:
    """Raises InputError with all reasons, if there are any."""
    if reasons := list(refused):
        raise InputError("; ".join(reasons))


def of_config(
    args: CoKLGRPOConfig, method: Method, buffer: Buffer, groups: Sequence[CachedGroup], given: dict[str, Any]
) -> Iterator[str]:
    """Before the model is loaded. groups: the buffer's that the method can use. given: to the trainer beside args."""
    accumulated, generated = args.gradient_accumulation_steps, args.steps_per_generation
    training = args.cokl_prompts == "training"
    if generated % accumulated:
        expected = f"a multiple of gradient_accumulation_steps ({accumulated}): an optimizer step has whole groups"
        yield f"steps_per_generation: expected {expected}, got {generated}"
    if training and (generated != accumulated or args.num_iterations > 1):
        expected = f"steps_per_generation={accumulated} and num_iterations=1: in later optimizer steps a training "
        expected += "prompt's rows would have two ratios"
        yield f"cokl_prompts: training expects {expected}; got {generated} and {args.num_iterations}"
    if training and args.mask_truncated_completions:
        yield "mask_truncated_completions: expected False with cokl_prompts=training, which weights whole responses"
    if not training and args.cokl_kl_prompts > len(groups):
        expected = f"at most the {len(groups)} prompts that the buffer has for {method.name}"
        yield f"cokl_kl_prompts: expected {expected}, got {args.cokl_kl_prompts}"
    if args.cokl_cached_per_prompt > buffer.group_size:
        expected = f"at most {buffer.group_size}, the answers that the buffer has to a prompt; 0 brings all of them"
        yield f"cokl_cached_per_prompt: expected {expected}, got {args.cokl_cached_per_prompt}"
    if not training and args.cokl_kl_prompts % args.world_size:
        yield f"cokl_kl_prompts: expected a multiple of {args.world_size} processes, got {args.cokl_kl_prompts}"
    if method.compares_with_reference and args.sync_ref_model:
        yield f"sync_ref_model: expected False: {method.name} compares with the starting model"
    if "rollout" in method.streams():
        yield from _of_sampling(args, method, buffer, given)


def _of_sampling(args: CoKLGRPOConfig, method: Method, buffer: Buffer, given: dict[str, Any]) -> Iterator[str]:
    """Of a method that weights fresh answers."""
    training = args.cokl_prompts == "training"
    if given.get("environment_factory") or (not training and (given.get("tools") or given.get("rollout_func"))):
        yield f"tools, environment_factory, rollout_func: expected none: {method.name} draws answers of one turn"
    yield from truncated(args)
    names = {"length": "max_completion_length", "temperature": "temperature"}
    for what, expected, _ in buffer.missed(method.streams(), args.max_completion_length, args.temperature):
        yield f"{names[what]}: expected {expected}; got {getattr(args, names[what])}"


def of_trainer(trainer: GRPOTrainer) -> Iterator[str]:
    """Of a CoKLGRPOTrainer, before it trains: the chat template, the prompts, the verdicts of the reward functions."""
    groups = trainer.groups
    prompts = [group.prompt for group in groups]
    ids = chain.from_iterable(trainer._tokenize_prompts(prompts[at : at + 64])[0] for at in range(0, len(prompts), 64))
    if any(list(mine) != group.prompt_ids.tolist() for mine, group in zip(ids, groups, strict=True)):
        expected = "the template, its arguments and tools that the buffer was made with"
        yield f"cokl_buffer: its prompts have other tokens than this run's chat template gives; expected {expected}"
    if trainer.args.cokl_prompts == "training" and (found := _shared(trainer)) is not None:
        print(f"cokl: {found:.1%} of the training prompts are in the buffer, and are regularized", flush=True)
        if not found:
            truth = truth_of(trainer.train_dataset.column_names)
            yield f"cokl_prompts: no training prompt has the messages and the {truth} of one in the buffer"
    if "rollout" in trainer.method.streams() and not any(isinstance(one, nn.Module) for one in trainer.reward_funcs):
        yield from _of_verdicts(trainer, groups[:JUDGED_GROUPS])


def _shared(trainer: GRPOTrainer) -> float | None:
    """The fraction of training prompts that the buffer has; None for a stream of them."""
    rows = trainer.train_dataset
    if not hasattr(rows, "__len__"):
        return None
    known, truth = {group.key for group in trainer.groups}, truth_of(rows.column_names)
    found = [
        not isinstance(row["prompt"], str) and prompt_key(row["prompt"], row.get(truth, "")) in known for row in rows
    ]
    return sum(found) / max(len(found), 1)


def _of_verdicts(trainer: GRPOTrainer, groups: Sequence[CachedGroup]) -> Iterator[str]:
    """A reward function that fails on the buffer's prompts, or judges the responses otherwise than they are stored."""
    rows = [row_of(group, trainer.truth) for group in groups for _ in group.response_ids]
    answers = [answer for group in groups for answer in cached_answers(group)]
    try:
        scores = rewards_of(trainer, rows, [one.prompt_ids for one in answers], [one.response_ids for one in answers])
    except Exception as error:  # whatever people's functions raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        expected = f"functions that judge the buffer's answers, from {', '.join(rows[0])}"
        yield f"reward_funcs: expected {expected}; got {reason}"
        return
    stored = [reward for group in groups for reward in group.rewards]
    for score, verdict in zip(scores.tolist(), stored, strict=False):  # of the other processes there are as many again
        if (score > trainer.args.cokl_correct_above) != bool(verdict):
            said = f"this run's reward functions give it {score:g}"
            threshold = f"cokl_correct_above={trainer.args.cokl_correct_above:g}"
            kind = ("wrong", "correct")[int(verdict)]
            yield f"cokl_buffer: a cached response is stored as {kind} and {said}, with {threshold}"
            return
