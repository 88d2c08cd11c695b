"""The reward function that VeRL calls for every response: the verifier for mathematics, a reward model for chat.

Named in `reward.custom_reward_function` with path `pkg://llm_bridge.rewards.score` and name `compute_score`; its
keyword-only arguments are `reward_kwargs`. All rows give the same keys, since VeRL collects them by those of the first.

Assumption beyond the paper: the reward model reads what follows the last </think>; a response that is cut off while
thinking is scored as an empty reply. Of what is longer than its context it reads the end.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from cokl.support.errors import InputError
from llm_bridge.data.rows import Message
from llm_bridge.rewards.verifier import Verifier

REWARD_MODEL = "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2"
ATTEMPTS = 3
"""Requests for one score."""
_UNFINISHED_THINKING = re.compile(r"<think>.*", re.DOTALL)


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any],
    *,
    reward_model: str = REWARD_MODEL,
    reward_model_seconds: float = 600.0,
    reward_router_address: str | None = None,
    reward_model_tokenizer: Any = None,
) -> dict[str, Any]:
    """The reward of one response: {"score": float, "verdict": str, "answer": str}.

    A row with a `conversation` in its `extra_info` is chat, any other is mathematics, whatever its data source is.
    Mathematics scores 1 or 0 and the verdict is the verifier's reason; chat scores the reward model's logit and the
    verdict is "scored". answer: what stands in the last box, "" for none and for chat. reward_model_seconds: wall time
    in which the reward model must have answered. VeRL supplies `reward_router_address` and `reward_model_tokenizer`
    when it runs a reward model. Raises InputError if the reward model is absent or does not answer.
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
        return {"score": float(verdict.correct), "verdict": verdict.reason, "answer": verdict.answer}
    if reward_router_address is None or reward_model_tokenizer is None:
        raise InputError(
            "chat is scored by a reward model but VeRL runs none: set reward.reward_model.enable=True and "
            f"reward.reward_model.model_path={reward_model}"
        )
    text = _as_reward_model_reads(conversation, without_thinking(solution_str), reward_model_tokenizer)
    score = await _score(reward_router_address, reward_model, text, reward_model_seconds)
    return {"score": score, "verdict": "scored", "answer": ""}


def without_thinking(response: str) -> str:
    """The part of a response that is meant for the user."""
    return _UNFINISHED_THINKING.sub("", response.rpartition("</think>")[2]).strip()


_verifier = functools.cache(Verifier)


def _as_reward_model_reads(conversation: list[Message], reply: str, tokenizer: Any) -> str:
    messages = [*conversation, {"role": "assistant", "content": reply}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=False, tokenize=False)
    return text.removeprefix(tokenizer.bos_token or "")  # the server adds it again


async def _score(address: str, model: str, text: str, seconds: float) -> float:
    """Ask VeRL's router in front of vLLM. Raises InputError if no attempt gave a score within its time."""
    import aiohttp

    url, said = f"http://{address}/classify", ""
    payload = {"model": model, "input": text, "use_activation": False, "truncate_prompt_tokens": -1}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds)) as session:
        for attempt in range(ATTEMPTS):
            try:
                async with session.post(url, json=payload) as response:
                    body = await response.text()
                said = f"HTTP {response.status}: {' '.join(body.split())[:120]}"
                score = float(json.loads(body)["data"][-1]["probs"][-1])
                if response.status == 200 and math.isfinite(score):
                    return score
            except (aiohttp.ClientError, TimeoutError) as error:
                said = " ".join(f"{type(error).__name__} {error}".split())
            except (ValueError, KeyError, IndexError, TypeError):
                pass  # an answer without a score, which is said below
            await asyncio.sleep(2.0**attempt)
    raise InputError(f"the reward model at {url} gave no score ({said}); see the log of its server")
