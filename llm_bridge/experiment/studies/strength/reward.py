"""The reward function of both tasks: the tiny chat reward, or 1 for two numbers with the given sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm_bridge.experiment.studies.plasticity.reward import STAGES
from llm_bridge.experiment.studies.plasticity.reward import compute_score as pairs
from llm_bridge.tiny.chat_reward import chat_reward


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any], **unused: Any
) -> dict[str, Any]:
    """VeRL's reward of one response: {"score": in [0, 1], "answer": the pair as written, "" for none and for chat}."""
    conversation = [dict(message) for message in extra_info.get("conversation", ())]
    if conversation:
        return {"score": chat_reward(conversation[-1]["content"], solution_str), "answer": ""}
    return pairs(STAGES[0], solution_str, ground_truth)
