"""Prompts and answers as TRL samples and judges them, and a buffer of them.

TRL gives reward functions the messages of an answer and the columns of its data set. A buffer has a ground truth and
`extra_info`: a reward function gets these under their names, and the ground truth under that of the data set's column,
the first of `TRUTHS`.

Assumption beyond the paper: an answer is correct if the sum of its rewards, each times TRL's weight, is above a
threshold. One that every reward function leaves out is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import parse_response
from trl.data_utils import is_conversational
from trl.trainer.utils import get_config_model_id

from cokl.support.errors import InputError
from cokl.support.files import require_writable
from llm_bridge.buffer.groups import Buffer, CachedGroup, model_fingerprint, plain

TRUTHS = ("ground_truth", "solution", "answer")
"""What a data set may call the answer that verdicts are about."""


class Answer(NamedTuple):
    """Token ids, and 1 on those of the response that the policy wrote."""

    prompt_ids: list[int]
    response_ids: list[int]
    mask: list[int]


def cached_answers(group: CachedGroup) -> Iterator[Answer]:
    """Of a group, in its order."""
    prompt = group.prompt_ids.tolist()
    for ids, mask in zip(group.response_ids, group.masks, strict=True):
        yield Answer(prompt, ids.tolist(), mask.tolist())


def truth_of(columns: Any) -> str:
    """What the data set with these columns calls the ground truth."""
    return next((name for name in TRUTHS if name in (columns or ())), TRUTHS[0])


def row_of(group: CachedGroup, truth: str) -> dict[str, Any]:
    """The prompt as a row of a data set of TRL's. truth: the name of the ground truth's column."""
    return {
        "prompt": group.prompt,
        **group.extra_info,
        "data_source": group.data_source,
        TRUTHS[0]: group.ground_truth,
        truth: group.ground_truth,
    }


def rewards_of(
    trainer: GRPOTrainer, rows: Sequence[Mapping[str, Any]], prompts: Sequence[Sequence[int]], ids: Sequence[list[int]]
) -> Tensor:
    """(R,): the rewards of responses by the run's own functions, weighted and summed; of the R rows of all processes.

    rows: as a data set has them. prompts, ids: tokens of the prompts and of the responses.
    """
    tokenizer = trainer._tokenizer
    template = [getattr(tokenizer, name, None) for name in ("response_template", "response_schema")]
    messages = [
        parse_response(tokenizer, response, prefix=list(prompt), tools=[])
        if template != [None, None]
        else {"role": "assistant", "content": tokenizer.decode(response, skip_special_tokens=True)}
        for prompt, response in zip(prompts, ids, strict=True)
    ]
    asked, answers = [row["prompt"] for row in rows], [[message] for message in messages]
    scores = totals(trainer, GRPOTrainer._calculate_rewards(trainer, list(rows), asked, answers, list(ids)))
    trainer._pending_extra_logs.clear()  # what the functions log is of the batch's answers
    trainer._pending_metrics.clear()
    return scores


def totals(trainer: GRPOTrainer, rewards: Tensor) -> Tensor:
    """(R,): each response's reward. rewards: (R, functions), NaN where a function leaves a response out.

    Raises InputError for one that is infinite, with which every weight of its group would be none.
    """
    scores = (rewards * trainer.reward_weights.to(rewards.device)).nansum(1).double().cpu()
    if not scores.isfinite().all():
        got = float(scores[~scores.isfinite()][0])
        raise InputError(f"reward_funcs: a response got the reward {got}: expected finite numbers")
    return scores


def sampled(trainer: GRPOTrainer, prompts: Sequence[list[int]]) -> list[Answer]:
    """A fresh response to each prompt by TRL's own engine; a prompt stands there `num_generations` times in a row."""
    ids, _ = trainer._generate_single_turn(list(prompts), None, {}, trainer.num_generations)
    return [Answer(prompt, list(response), [1] * len(response)) for prompt, response in zip(prompts, ids, strict=True)]


def truncated(args: GRPOConfig) -> Iterator[str]:
    """What makes an engine sample from another distribution than that of the log-probabilities, a line each."""
    for name, whole in (("top_p", (1, None)), ("top_k", (0, -1, None)), ("min_p", (0, None))):
        if getattr(args, name) not in whole:
            expected = f"{whole[0]}: log-probabilities are those of the whole distribution"
            yield f"{name}: expected {expected}, got {getattr(args, name)}"
    if args.repetition_penalty != 1:
        yield f"repetition_penalty: expected 1, as log-probabilities have it, got {args.repetition_penalty}"
    if changed := set(args.generation_kwargs or {}) & {"temperature", "top_p", "top_k", "min_p", "max_new_tokens"}:
        yield f"generation_kwargs: expected no {', '.join(sorted(changed))}, which have options of their own"


def fill_buffer(trainer: GRPOTrainer, path: str | Path, correct_above: float = 0.5) -> Buffer:
    """Sample answers to all prompts of a trainer's data set, before it trains, and save them with their verdicts.

    Args:
        trainer: with the model that is to train, in one process. Its data set has conversational prompts, and a column
            of `TRUTHS` if prompts of the same messages have different answers. `num_generations` are sampled to each.
        path: of the file, which is not there yet.
        correct_above: an answer whose reward is above it counts as correct.

    Returns:
        The buffer at `path`.

    Raises:
        InputError: the file is there or cannot be written, the prompts are texts, sampling is not of the whole
            distribution, or the trainer has trained or has several processes.
    """
    path, columns = Path(path), trainer.train_dataset.column_names
    truth, extra = truth_of(columns), sorted(set(columns) - {"prompt", "data_source"})
    name = get_config_model_id(trainer.model.config)
    for holds, expected in (
        (not path.exists(), f"a file that is not there yet, got {path}"),
        (not (lines := [*truncated(trainer.args)]), "; ".join(lines)),
        (trainer.accelerator.num_processes == 1, "one process; start the script without a launcher"),
        (trainer.state.global_step == 0, "a trainer that has not trained: the buffer is of the starting model"),
        (not (trainer.tools or trainer.environment_factories), "a trainer without tools and environments"),
        (is_conversational(trainer.train_dataset[0]), "conversational prompts, a list of messages, in train_dataset"),
    ):
        if not holds:
            raise InputError(f"fill_buffer: expected {expected}")
    try:
        require_writable(path)
    except InputError as error:
        raise InputError(
            f"fill_buffer: expected a file in a folder that can be written, got {path}: {error}"
        ) from error
    fingerprint, count = model_fingerprint(name), trainer.num_generations
    size = max(1, trainer.args.generation_batch_size // count)
    groups: dict[str, CachedGroup] = {}
    trainer.model.train()  # as TRL samples in training
    for start in tqdm(range(0, len(trainer.train_dataset), size), desc=f"buffer of {len(trainer.train_dataset)}"):
        stop = min(start + size, len(trainer.train_dataset))
        rows = [plain(trainer.train_dataset[place]) for place in range(start, stop) for _ in range(count)]
        prompts, _, _ = trainer._tokenize_prompts([row["prompt"] for row in rows])
        answers = sampled(trainer, prompts)
        scores = rewards_of(trainer, rows, prompts, [answer.response_ids for answer in answers])
        for first in range(0, len(rows), count):
            row, own = rows[first], answers[first : first + count]
            group = CachedGroup(
                prompt=[{key: message[key] for key in ("role", "content")} for message in row["prompt"]],
                data_source=str(row.get("data_source", "")),
                ground_truth=row.get(truth, ""),
                prompt_ids=np.array(own[0].prompt_ids),
                response_ids=[np.array(answer.response_ids) for answer in own],
                rewards=(scores[first : first + count] > correct_above).long().numpy(),
                extra_info={key: row[key] for key in extra if key != truth},
            )
            groups[group.key] = group  # a data set may hold a prompt twice
    buffer = Buffer(tuple(groups.values()), fingerprint, trainer.temperature)
    buffer.save(path)
    solved = torch.tensor([float(group.rewards.any()) for group in buffer.groups]).mean()
    print(f"buffer: {len(buffer)} prompts, {float(solved):.1%} with a correct response")
    return buffer
