"""A buffer from responses that were sampled elsewhere, by vLLM or SGLang, as tokens or text.

Assumption beyond the paper: a response that comes as text ended by itself, so the end token is added to it; a reward
above 0.5 counts as correct.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from cokl.responses.buffer import Buffer, CachedGroup, model_fingerprint, model_folder, plain
from cokl.support.errors import InputError
from cokl.support.files import read_parquet
from cokl.support.options import require

CORRECT_ABOVE = 0.5
"""Rewards above it are verdicts of correct."""
Judge = Callable[..., Any]
"""VeRL's reward function: of data_source, solution_str, ground_truth and extra_info, a number or {"score": number}."""


def bring_buffer(
    prompts: Path, responses: Path, reference: str, judge: Judge | None = None, thinking: bool | None = None
) -> Buffer:
    """The buffer of the prompts that have responses, in the prompts' order.

    prompts: Parquet as VeRL trains on it: `prompt` (messages), `data_source`, `reward_model`, perhaps `extra_info`.
    responses: Parquet with a row per response: `prompt` (the row of its prompt, from 0), `response_ids` (tokens, with
    the end token) or `response` (text), `reward` (0 or 1) unless `judge` gives it, and perhaps `log_probs`, nats per
    token under the reference at temperature 1, which are computed where they are missing. reference: the folder or the
    hub's name of the model that sampled them. thinking: given to the chat template if it is not None.
    Raises InputError for a missing column, a prompt that is not there, and groups that no method could use.
    """
    from transformers import AutoTokenizer

    asked = read_parquet(prompts, ("prompt", "data_source", "reward_model"))
    given = read_parquet(responses, ("prompt", *(() if judge else ("reward",))))
    if "response_ids" not in given:
        given = read_parquet(responses, ("response",))
    outside = given["prompt"][~given["prompt"].isin(range(len(asked)))]
    require(
        outside.empty, f"{responses}, column 'prompt'", f"rows of {prompts}, 0 to {len(asked) - 1}", list(outside)[:1]
    )
    folder = model_folder(reference)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    score = None if "log_probs" in given else _scorer(folder)
    options = {} if thinking is None else {"enable_thinking": thinking}
    groups = []
    for index, rows in given.groupby("prompt", sort=True):
        row = asked.iloc[int(str(index))]
        messages = [{str(key): str(text) for key, text in message.items()} for message in row["prompt"]]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **options)
        prompt_ids = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
        responses_ids = [_tokens(response, tokenizer) for response in rows.to_dict("records")]  # type: ignore[arg-type]
        groups.append(
            CachedGroup(
                prompt=messages,
                data_source=str(row["data_source"]),
                ground_truth=str(row["reward_model"]["ground_truth"]),
                prompt_ids=prompt_ids,
                response_ids=responses_ids,
                log_probs=[score(prompt_ids, ids) for ids in responses_ids] if score else list(rows["log_probs"]),
                rewards=_verdicts(rows, row, responses_ids, tokenizer, judge),
                extra_info=plain(row.get("extra_info") or {}),
            )
        )
    return Buffer(tuple(groups), model_fingerprint(folder))


def load_judge(name: str) -> Judge:
    """The reward function FILE.py:NAME or pkg://MODULE:NAME, as VeRL loads it. Raises InputError if it is not there."""
    from verl.utils.import_utils import load_extern_object

    path, _, function = name.rpartition(":")
    try:
        return load_extern_object(path, function)
    except (ImportError, AttributeError, OSError, ValueError) as error:
        raise InputError(f"reward function {name!r}: expected FILE.py:NAME or pkg://MODULE:NAME ({error})") from error


def _tokens(response: dict[str, Any], tokenizer: Any) -> np.ndarray:
    if "response_ids" in response:
        return np.asarray(response["response_ids"], dtype=np.int64)
    return np.array([*tokenizer(response["response"], add_special_tokens=False)["input_ids"], tokenizer.eos_token_id])


def _scorer(folder: Path) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Log-probabilities of a response's tokens, (T,), on a GPU if there is one."""
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()

    @torch.no_grad()
    def score(prompt_ids: np.ndarray, response_ids: np.ndarray) -> np.ndarray:
        tokens = torch.tensor(np.concatenate([prompt_ids, response_ids]), device=device)
        log_probs = model(tokens[None]).logits[0, len(prompt_ids) - 1 : -1].log_softmax(-1)
        return log_probs.gather(-1, tokens[len(prompt_ids) :, None])[:, 0].cpu().numpy()

    return score


def _verdicts(
    rows: pd.DataFrame, prompt: pd.Series, ids: list[np.ndarray], tokenizer: Any, judge: Judge | None
) -> np.ndarray:
    """(G,): 0 or 1."""
    if judge is None:
        return (rows["reward"].to_numpy() > CORRECT_ABOVE).astype(np.int64)
    rewards = []
    for tokens in ids:
        given = judge(
            data_source=prompt["data_source"],
            solution_str=tokenizer.decode(tokens, skip_special_tokens=True),
            ground_truth=prompt["reward_model"]["ground_truth"],
            extra_info=prompt.get("extra_info") or {},
        )
        given = asyncio.run(given) if inspect.iscoroutine(given) else given
        rewards.append(float(given["score"] if isinstance(given, dict) else given))
    return (np.array(rewards) > CORRECT_ABOVE).astype(np.int64)
