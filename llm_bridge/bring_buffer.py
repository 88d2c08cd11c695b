"""A buffer from responses that were sampled elsewhere, by vLLM or SGLang, as tokens or text.

Assumption beyond the paper: a response given as text is taken as complete, so the end token is added to it; a reward
above 0.5 counts as correct.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from cokl.responses.buffer import Buffer, CachedGroup, model_fingerprint, model_folder, plain
from cokl.support.errors import InputError
from cokl.support.files import read_parquet
from cokl.support.options import require
from llm_bridge.rewards.judge import Judge

CORRECT_ABOVE = 0.5
"""Rewards of the table above it are verdicts of correct."""
COMPARED, NEAR = 8, 0.1
"""Of how many responses log-probabilities that are brought are computed again, and how many nats per token the mean
difference may be: what a model's 16 bits leave, and another temperature exceeds."""
BATCH_TOKENS = 8192
"""Of a pass of the reference, padding included, unless a response alone is longer."""


def bring_buffer(
    prompts: Path,
    responses: Path,
    reference: str,
    judge: Judge | None = None,
    thinking: bool | None = None,
    temperature: float = 1.0,
    log_probs: bool = True,
) -> Buffer:
    """The buffer of the prompts that have responses, in the prompts' order.

    prompts: Parquet as VeRL trains on it: `prompt` (messages), `data_source`, `reward_model`, perhaps `extra_info`.
    responses: Parquet with a row per response: `prompt` (the row of its prompt, from 0), `response_ids` (tokens, with
    the end token) or `response` (text), `reward` (0 or 1) unless `judge` gives it; and perhaps `log_probs`, nats per
    token under the reference, which are computed where they are missing, `response_mask` (0 on the tokens of tools),
    and `prompt_ids`, the prompt's tokens as its model read them (tools, another chat template). reference: the folder
    or the hub's name of the model that sampled them. thinking: given to the chat template if it is not None.
    temperature: of log-probabilities. log_probs: without them the responses may be another model's, for methods that
    do not compare with the reference.
    Raises InputError for a missing column, a prompt that is not there, log-probabilities that are not the reference's,
    and groups that no method could use.
    """
    from transformers import AutoTokenizer

    asked = read_parquet(prompts, ("prompt", "data_source", "reward_model")).to_dict("records")
    given = read_parquet(responses, ("prompt", *(() if judge else ("reward",))))
    if "response_ids" not in given:
        given = read_parquet(responses, ("response",))
    integers = pd.api.types.is_integer_dtype(given["prompt"])
    require(integers, f"{responses}, column 'prompt'", "integers, none missing", str(given["prompt"].dtype))
    outside = given["prompt"][~given["prompt"].isin(range(len(asked)))]
    expected = f"rows of {prompts}, 0 to {len(asked) - 1}"
    require(outside.empty, f"{responses}, column 'prompt'", expected, list(outside)[:1])
    folder = model_folder(reference)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    options = {} if thinking is None else {"enable_thinking": thinking}
    given = given.sort_values("prompt", kind="stable", ignore_index=True)
    if "response_ids" not in given:
        texts = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in given["response"])
        given["response_ids"] = pd.Series([[*ids, tokenizer.eos_token_id] for ids in texts])
    if "prompt_ids" not in given:
        ids = {}
        for row in given["prompt"].unique():
            messages = plain(asked[row]["prompt"])
            text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **options)
            ids[row] = tokenizer(text, add_special_tokens=False)["input_ids"]
        given["prompt_ids"] = given["prompt"].map(ids)
    for column in ("prompt_ids", "response_ids"):
        given[column] = pd.Series([np.asarray(ids, dtype=np.int64) for ids in given[column]])
    rows = list(zip(given["prompt_ids"], given["response_ids"], strict=True))
    if not log_probs:
        given["log_probs"] = pd.Series([np.full(len(response), np.nan) for _, response in rows])
    elif "log_probs" in given:
        _require_the_references(given["log_probs"].tolist()[:COMPARED], rows[:COMPARED], folder, temperature)
    else:
        given["log_probs"] = pd.Series(score(rows, folder, temperature))
    if judge is not None:
        given["correct"] = asyncio.run(_verdicts(asked, given, tokenizer, judge))
    else:
        given["correct"] = given["reward"] > CORRECT_ABOVE
    groups = [_group(asked[int(str(row))], answers) for row, answers in given.groupby("prompt", sort=True)]
    return Buffer(tuple(groups), model_fingerprint(folder), temperature)


def _group(row: dict[Any, Any], answers: pd.DataFrame) -> CachedGroup:
    """Of a prompt and its responses."""
    return CachedGroup(
        prompt=plain(row["prompt"]),
        data_source=str(row["data_source"]),
        ground_truth=plain(row["reward_model"]["ground_truth"]),
        prompt_ids=answers["prompt_ids"].iloc[0],
        response_ids=list(answers["response_ids"]),
        log_probs=list(answers["log_probs"]),
        rewards=answers["correct"].to_numpy(dtype=np.int64),
        extra_info=plain(row.get("extra_info") or {}),
        masks=list(answers.get("response_mask", ())),
    )


@torch.no_grad()
def score(rows: Sequence[tuple[np.ndarray, np.ndarray]], folder: Path, temperature: float) -> list[np.ndarray]:
    """Log-probabilities of responses' tokens, (T,) each, in nats, under the model in `folder`.

    rows: tokens of prompt and response. On a GPU, in bfloat16, if there is one. Rows of like length go together.
    """
    from transformers import AutoModelForCausalLM

    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
    lengths = [len(prompt) + len(response) for prompt, response in rows]
    scores: list[np.ndarray] = [np.zeros(0)] * len(rows)
    left = sorted(range(len(rows)), key=lengths.__getitem__)
    with tqdm(total=len(rows), desc="log-probabilities", unit="response") as progress:
        while left:
            size = max(1, BATCH_TOKENS // lengths[left[-1]])
            left, batch = left[:-size], left[-size:]
            tokens = [torch.tensor(np.concatenate(rows[row]), device=device) for row in batch]
            padded = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
            mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in tokens], batch_first=True)
            logits = model(padded, attention_mask=mask).logits
            for row, own, all_logits in zip(batch, tokens, logits, strict=True):
                start = len(rows[row][0])
                log_probs = (all_logits[start - 1 : len(own) - 1].float() / temperature).log_softmax(-1)
                scores[row] = log_probs.gather(-1, own[start:, None])[:, 0].cpu().numpy()
            progress.update(len(batch))
    return scores


def _require_the_references(
    brought: Sequence[Any], rows: Sequence[tuple[np.ndarray, np.ndarray]], folder: Path, temperature: float
) -> None:
    """Raises InputError for log-probabilities of another model or at another temperature."""
    for given, computed in zip(brought, score(rows, folder, temperature), strict=True):
        if len(given) == len(computed) and (gap := np.abs(np.asarray(given) - computed).mean()) > NEAR:
            raise InputError(
                f"column 'log_probs': expected those of the reference at temperature {temperature:g}, got others by "
                f"{gap:.2f} nats a token; leave the column out to have them computed"
            )


async def _verdicts(asked: list[dict[Any, Any]], given: pd.DataFrame, tokenizer: Any, judge: Judge) -> list[bool]:
    verdicts = []
    for number, response in zip(given["prompt"], given["response_ids"], strict=True):
        row, text = asked[number], tokenizer.decode(response, skip_special_tokens=True)
        truth, extra = plain(row["reward_model"]["ground_truth"]), plain(row.get("extra_info") or {})
        verdicts.append(await judge.score(text, row["data_source"], truth, extra) > judge.threshold)
    return verdicts
