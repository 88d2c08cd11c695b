"""The reward function of every study: the tiny chat reward, or 1 for two numbers with the given sum."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from llm_bridge.tiny.chat_reward import chat_reward

STAGES = ("pairs", "pairs_smaller_first")
"""Plasticity's data sources: every pair with the right sum is correct; or, of these, those whose first number is the
smaller one."""
_ANSWER = re.compile(r"\\boxed\{ ?(\d+) ?\+ ?(\d+) ?\}")


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any], **unused: Any
) -> dict[str, Any]:
    """VeRL's reward of one response: {"score": in [0, 1], "answer": the pair as written, "" for none and for chat}."""
    conversation = extra_info.get("conversation", ())
    if len(conversation):
        return {"score": chat_reward(conversation[-1]["content"], solution_str), "answer": ""}
    found = _ANSWER.fullmatch(solution_str.strip())
    if not found:
        return {"score": 0.0, "answer": ""}
    first, second = int(found[1]), int(found[2])
    correct = first + second == int(ground_truth) and (data_source != STAGES[1] or first < second)
    return {"score": float(correct), "answer": f"{first}+{second}"}
