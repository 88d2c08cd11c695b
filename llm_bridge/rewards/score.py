"""The reward function that VeRL calls for every response: the verifier for mathematics, a reward model for chat.

Named in `reward.custom_reward_function` with path `pkg://llm_bridge.rewards.score` and name `compute_score`; its
keyword-only arguments are `reward_kwargs`. All rows give the same keys, since VeRL collects them by those of the first.

Assumption beyond the paper: the reward model reads what follows the last </think>; a response that is cut off while
thinking is scored as an empty reply.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Literal

from cokl.responses.verifier import Verifier, final_answer
from cokl.support.errors import InputError
from llm_bridge.data.rows import Message

REWARD_MODEL = "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2"
REFUSALS = 3
"""Answers of HTTP 500 to one request after which it counts as one that the reward model cannot take."""
_UNFINISHED_THINKING = re.compile(r"<think>.*", re.DOTALL)


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any],
    *,
    chat_reward: Literal["reward_model", "programmatic"] = "reward_model",
    reward_model: str = REWARD_MODEL,
    reward_model_seconds: float = 600.0,
    reward_model_tokens: int | None = None,
    reward_router_address: str | None = None,
    reward_model_tokenizer: Any = None,
) -> dict[str, Any]:
    """The reward of one response: {"score": float, "verdict": str, "answer": str}.

    A row with a `conversation` in its `extra_info` is chat, any other is mathematics, whatever its data source is.
    Mathematics scores 1 or 0 and the verdict is the verifier's reason; chat scores the reward model's logit, or the
    tiny preset's programmatic reward in [0, 1], and the verdict is "scored", or "truncated" where the reward model read
    a beginning of the reply alone. answer: what stands in the last box, "" for none and for chat. reward_model_seconds:
    wall time in which the reward model must have answered. reward_model_tokens: how many it reads at most,
    conversation and template included. VeRL supplies `reward_router_address` and `reward_model_tokenizer` when it runs
    a reward model. Raises InputError if the reward model is absent or does not answer.
    """
    conversation = [dict(message) for message in extra_info.get("conversation", ())]
    if not conversation:
        verdict = await asyncio.to_thread(
            _verifier().verify,
            ground_truth,
            solution_str,
            multiple=bool(extra_info.get("multiple", False)),
            tolerances=[float(tolerance) for tolerance in extra_info.get("tolerances", ())],
        )
        return {"score": float(verdict.correct), "verdict": verdict.reason, "answer": final_answer(solution_str)}
    reply = without_thinking(solution_str)
    if chat_reward == "programmatic":
        from llm_bridge.tiny.language import chat_reward as programmatic

        return {"score": programmatic(conversation[-1]["content"], reply), "verdict": "scored", "answer": ""}
    if reward_router_address is None or reward_model_tokenizer is None:
        raise InputError(
            "chat is scored by a reward model but VeRL runs none: set reward.reward_model.enable=True and "
            f"reward.reward_model.model_path={reward_model}"
        )
    read = _shortened(conversation, reply, reward_model_tokenizer, reward_model_tokens)
    text = _as_reward_model_reads(conversation, read, reward_model_tokenizer)
    score = await _score(reward_router_address, reward_model, text, reward_model_seconds)
    return {"score": score, "verdict": "scored" if read == reply else "truncated", "answer": ""}


def without_thinking(response: str) -> str:
    """The part of a response that is meant for the user."""
    return _UNFINISHED_THINKING.sub("", response.rpartition("</think>")[2]).strip()


_verifier = functools.cache(Verifier)


def _shortened(conversation: list[Message], reply: str, tokenizer: Any, most: int | None) -> str:
    """The reply, or the longest beginning of it, in tokens, with which the whole has no more than `most`."""
    read, tokens = reply, tokenizer(reply, add_special_tokens=False)["input_ids"]
    while most is not None and tokens:
        over = len(tokenizer(_as_reward_model_reads(conversation, read, tokenizer))["input_ids"]) - most
        if over <= 0:
            break
        tokens = tokens[: max(0, len(tokens) - over)]
        read = tokenizer.decode(tokens)
    return read


def _as_reward_model_reads(conversation: list[Message], reply: str, tokenizer: Any) -> str:
    messages = [*conversation, {"role": "assistant", "content": reply}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=False, tokenize=False)
    return text.removeprefix(tokenizer.bos_token or "")  # the server adds it again


async def _score(address: str, model: str, text: str, seconds: float) -> float:
    """Ask VeRL's router in front of vLLM; tries again after server errors until the time is up."""
    import aiohttp

    url = f"http://{address}/classify"
    payload = {"model": model, "input": text, "use_activation": False}
    reason, refused = "", 0
    no_limit = aiohttp.ClientTimeout(total=None)  # the limit is over all attempts
    try:
        async with asyncio.timeout(seconds), aiohttp.ClientSession(timeout=no_limit) as session:
            for attempt in itertools.count():
                try:
                    async with session.post(url, json=payload) as response:
                        refused += response.status == 500  # what VeRL's router makes of its server's 4xx
                        if response.status < 500 or refused == REFUSALS:
                            return _read_score(response.status, await response.text(), url)
                        reason = f": HTTP {response.status}"
                except aiohttp.ClientError as error:
                    reason = f": {' '.join(str(error).split())}"
                await asyncio.sleep(min(2.0**attempt, 30.0))
    except TimeoutError:
        pass
    raise InputError(f"the reward model at {url} gave no score within {seconds:g} s{reason}; see the log of its server")


def _read_score(status: int, body: str, url: str) -> float:
    try:
        score = float(json.loads(body)["data"][-1]["probs"][-1])
        if status != 200 or not math.isfinite(score):
            raise ValueError
    except (ValueError, KeyError, IndexError, TypeError) as error:
        answer = " ".join(body.split())[:120]
        raise InputError(f"the reward model at {url} answered HTTP {status} without a score: {answer}") from error
    return score
