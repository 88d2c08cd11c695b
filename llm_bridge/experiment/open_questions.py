"""Prompts and rewards of the preset open-questions: those of `llm_bridge.open_questions`, as VeRL reads them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llm_bridge.data.rows import chat_row, write_rows
from llm_bridge.open_questions.questions import Question, built_in


def write_sets(folder: Path, seed: int = 0, data_dir: Path | None = None) -> None:
    """Write chat_train, trained (the same questions, for evaluation) and held_out. A question is its own ground truth.

    seed, data_dir: change nothing, for the questions are fixed and from packages. Raises InputError as `built_in` does.
    """
    questions = built_in()
    trained = [question for question in questions if not question.held_out]
    sets = {"chat_train": trained, "trained": trained, "held_out": [q for q in questions if q.held_out]}
    for name, of_set in sets.items():
        rows = []
        for index, question in enumerate(of_set):
            row = chat_row(name, index, question.kind, [{"role": "user", "content": question.text}])
            rows.append(row | {"reward_model": {"style": "rule", "ground_truth": question.text}})
        write_rows(rows, folder / f"{name}.parquet")


def score(data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any]) -> dict[str, Any]:
    """The reward of one response, as VeRL calls it: 1 where it names one right answer, else 0, and this answer."""
    answer = _questions()[ground_truth].answer(solution_str)
    return {"score": float(answer is not None), "answer": answer or ""}


@functools.cache
def _questions() -> dict[str, Question]:
    return {question.text: question for question in built_in()}
