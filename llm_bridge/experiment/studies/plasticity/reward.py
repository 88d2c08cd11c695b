"""The reward function of both stages: two numbers with the given sum, and in the second the smaller one first."""

from __future__ import annotations

import re
from typing import Any

STAGES = ("pairs", "pairs_smaller_first")
"""Data sources: every pair with the right sum is correct; or, of these, those whose first number is the smaller one."""
_ANSWER = re.compile(r"\\boxed\{ ?(\d+) ?\+ ?(\d+) ?\}")


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **unused: Any
) -> dict[str, Any]:
    """VeRL's reward of one response: {"score": 1.0 or 0.0, "answer": the pair as written, "" for none}."""
    found = _ANSWER.fullmatch(solution_str.strip())
    if not found:
        return {"score": 0.0, "answer": ""}
    first, second = int(found[1]), int(found[2])
    correct = first + second == int(ground_truth) and (data_source == STAGES[0] or first < second)
    return {"score": float(correct), "answer": f"{first}+{second}"}
