"""A buffer from responses that were sampled elsewhere, by vLLM, SGLang or another engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cokl.support.errors import InputError
from cokl.support.options import require
from llm_bridge.buffer.groups import Buffer, CachedGroup, groups_of, model_fingerprint, model_folder
from llm_bridge.buffer.rows import read_rows
from llm_bridge.rewards.judge import reward_of

REQUIRED = {"prompt", "data_source", "ground_truth", "response_ids"}
"""Columns of what is brought, and `reward` if no function judges."""


def bring_buffer(
    responses: Path,
    reference: str,
    function: Callable[..., Any] | None = None,
    thinking: bool = True,
    temperature: float = 1.0,
    correct_above: float = 0.5,
) -> Buffer:
    """The buffer of the prompts in a file of responses, in its order.

    responses: Parquet of `llm_bridge.buffer.rows.SCHEMA`, of which REQUIRED must be there. `reward` is given by
    `function`, a reward function of VeRL's form, or by the file. Missing prompt tokens are the chat template's.
    reference: the folder or the hub's name of the model that will train with them. thinking: given to the chat
    template. temperature: at which they were sampled. correct_above: a larger `reward` is the verdict correct.
    Raises InputError for rows that are refused, tokens of another vocabulary or of padding, and groups that no method
    could use.
    """
    table = read_rows(responses, REQUIRED if function else {*REQUIRED, "reward"})
    beside = function is not None and "reward" in table.column_names
    require(not beside, f"{responses}, column 'reward'", "none beside a reward function", "one")
    groups = groups_of(table, responses)
    folder = model_folder(reference)
    tokenizer = tokenizer_of(folder)
    if "prompt_ids" not in table.column_names:
        groups = tuple(replace(group, prompt_ids=_prompt_ids(group, tokenizer, thinking)) for group in groups)
    _require_tokens(groups, tokenizer, responses)
    rewards = [_rewards(group, tokenizer, function) if function else group.rewards for group in groups]
    verdicts = [np.where(values > correct_above, 1.0, 0.0) for values in rewards]
    groups = tuple(replace(group, rewards=values) for group, values in zip(groups, verdicts, strict=True))
    return Buffer(groups, model_fingerprint(folder), temperature)


def tokenizer_of(folder: Path) -> Any:
    """Of the model in `folder`. Raises InputError for what transformers cannot read."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # those of three libraries, which have no class in common
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{folder}: expected a Hugging Face model folder ({reason})") from error


def chat_text(tokenizer: Any, prompt: Sequence[Mapping[str, str]], thinking: bool, where: str) -> str:
    """What a model reads of the messages `prompt`. Raises InputError, with `where`, for those that it refuses."""
    from jinja2 import TemplateError

    try:
        options = {"add_generation_prompt": True, "enable_thinking": thinking}
        return str(tokenizer.apply_chat_template(prompt, tokenize=False, **options))
    except (TemplateError, ValueError) as error:
        raise InputError(f"{where}: the chat template refuses {str(prompt)[:80]} ({error})") from error


def _prompt_ids(group: CachedGroup, tokenizer: Any, thinking: bool) -> np.ndarray:
    """(P,) tokens by the chat template. Raises InputError for messages that it refuses."""
    text = chat_text(tokenizer, group.prompt, thinking, "column 'prompt'")
    ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"], dtype=np.int64)
    require(len(ids) > 0, "column 'prompt'", f"text by the chat template of {tokenizer.name_or_path}", "none")
    return ids


def _require_tokens(groups: Sequence[CachedGroup], tokenizer: Any, path: Path) -> None:
    """Raises InputError for unknown tokens, a response that repeats its prompt, and padding at a row's ends."""
    known = f"token ids of {tokenizer.name_or_path}, below {len(tokenizer)}"
    ends = {tokenizer.eos_token_id, tokenizer.pad_token_id}
    rows = [(group.prompt_ids, ids) for group in groups for ids in group.response_ids]
    for row, (prompt, response) in enumerate(rows):
        for name, ids in (("prompt_ids", prompt), ("response_ids", response)):
            require(ids.max() < len(tokenizer), f"{path}, column {name!r}, row {row}", known, int(ids.max()))
        repeated = len(prompt) > 3 and np.array_equal(response[: len(prompt)], prompt)
        require(not repeated, f"{path}, column 'response_ids', row {row}", "a response without its prompt", "both")
        padded = len(response) > 1 and set(response[-2:].tolist()) <= ends
        expected = "no padding and no second end token after the end token"
        require(not padded, f"{path}, column 'response_ids', row {row}", expected, response[-2:].tolist())
        padded = len(prompt) > 1 and prompt[0] == tokenizer.pad_token_id != tokenizer.bos_token_id
        require(not padded, f"{path}, column 'prompt_ids', row {row}", "no padding", prompt[:2].tolist())


def _rewards(group: CachedGroup, tokenizer: Any, function: Callable[..., Any]) -> np.ndarray:
    """(G,): the function's scores, one response after the other."""
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in group.response_ids]
    return np.array(
        [reward_of(function, text, group.data_source, group.ground_truth, group.extra_info) for text in texts]
    )
