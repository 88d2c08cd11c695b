"""A reward function without a reward model: the verifier for mathematics, friendly words for chat.

Assumption beyond the paper: it takes a chat reply's score from its words, VADER's (Hutto and Gilbert 2014), where the
paper has a reward model of 8 billion parameters. So what a run learns in chat is another task than the paper's.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from llm_bridge.rewards import score


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any]
) -> dict[str, Any]:
    """The reward of one response, as `llm_bridge.rewards.score.compute_score` gives it for mathematics.

    Chat: 0 to 1, VADER's compound score, from -1 to 1, of what follows the last </think>; 0.5 for no word.
    """
    if not len(extra_info.get("conversation") or ()):
        return await score.compute_score(data_source, solution_str, ground_truth, extra_info)
    compound = float(_analyzer().polarity_scores(score.without_thinking(solution_str))["compound"])
    return {"score": (1 + compound) / 2, "verdict": "scored", "answer": ""}


@functools.cache
def _analyzer() -> Any:
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    return SentimentIntensityAnalyzer()
