"""Prompts and rewards of the preset smollm2, all from packages on PyPI.

Arithmetic is reasoning-gym's, and so is its verdict. Chat is the first lines of chatterbot-corpus's conversations, and
its reward is how friendly vaderSentiment finds the reply's words.
"""

from __future__ import annotations

import functools
import importlib.resources
import itertools
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from cokl.support.errors import InputError
from llm_bridge.data.rows import chat_row, write_rows
from llm_bridge.experiment.workloads import CANDIDATES

EASY = ("chain_sum", {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1})
"""What the math stage trains on: reasoning-gym's data set and its settings, of which sums are taken, no differences."""
HARD = ("chain_sum", {"min_terms": 3, "max_terms": 3, "min_digits": 1, "max_digits": 1})
"""What the model mostly fails after it, and now and then gets right."""
NO_CHAT = ("coding", "tech_support", "trivia")
"""Topics of the corpus whose lines are no small talk."""
CHARACTERS = range(8, 61)
"""How long a chat line is."""
SIZES = {"easy": 36, "hard": 96, "chat_val": 32}
"""Prompts of the sets; the easy kind's others are math_train, the other chat lines chat_train."""
KNOWN, UNKNOWN = 7 / 8, 1 / 8
"""The least share of right draws of a known prompt, and the most of an unknown one."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def write_sets(folder: Path, seed: int, data_dir: Path | None = None) -> None:
    """Write math_train, candidates (of both kinds), chat_train and chat_val; no prompt is in two of them.

    The same seed gives the same files. data_dir: changes nothing, for their sources are packages.
    """
    easy, hard = ((one for one in _prompts(*kind, seed) if " - " not in one[1]) for kind in (EASY, HARD))
    candidates = [*itertools.islice(easy, SIZES["easy"]), *itertools.islice(hard, SIZES["hard"])]
    chat = _chat_lines()
    random.Random(seed).shuffle(chat)
    sets = {
        CANDIDATES: candidates,
        "math_train": list(easy),
        "chat_val": chat[: SIZES["chat_val"]],
        "chat_train": chat[SIZES["chat_val"] :],
    }
    for name, prompts in sets.items():
        rows = []
        for index, (task, question, answer) in enumerate(prompts):
            row = chat_row(name, index, task, [{"role": "user", "content": question}])
            rows.append(row | {"ability": task, "reward_model": {"style": "rule", "ground_truth": answer}})
        write_rows(rows, folder / f"{name}.parquet")


def _prompts(task: str, settings: Mapping[str, Any], seed: int) -> Iterator[tuple[str, str, str]]:
    """Task, question and answer of 3000 entries, which no other seed has, each question once."""
    import reasoning_gym

    seen = set()
    for entry in reasoning_gym.create_dataset(task, seed=3000 * seed, size=3000, **settings):
        if entry["question"] not in seen:
            seen.add(entry["question"])
            yield task, entry["question"], entry["answer"]


def _chat_lines() -> list[tuple[str, str, str]]:
    """As `_prompts`, without an answer."""
    topics = importlib.resources.files("chatterbot_corpus") / "data" / "english"
    lines: dict[str, None] = {}
    for topic in sorted(topics.iterdir(), key=lambda file: file.name):
        if topic.name.removesuffix(".yml") not in NO_CHAT:
            conversations = yaml.safe_load(topic.read_text(encoding="utf-8"))["conversations"]
            lines |= dict.fromkeys(str(conversation[0]).strip() for conversation in conversations)
    return [("chat", line, "") for line in lines if len(line) in CHARACTERS]


def score(data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any]) -> dict[str, Any]:
    """The reward of one response, as VeRL calls it: {"score", "answer", "prompt"}.

    Arithmetic is right, 1, where a response ends with a number that reasoning-gym's own scoring accepts, else 0. In
    training a right number with words after it, as in a reply that was cut off, earns 0.5, so that replies learn to
    end. `answer` is the response as it stands, for its forms are what is counted. A chat reply's score is how friendly
    its words are, from 0 to 1: VADER's compound score (Hutto and Gilbert 2014), which is from -1 to 1.
    """
    told = {"answer": solution_str.strip(), "prompt": f"{data_source}/{extra_info['index']}"}
    if data_source.startswith("chat"):
        return {"score": (1 + float(_analyzer().polarity_scores(solution_str)["compound"])) / 2, **told}
    numbers = list(_NUMBER.finditer(solution_str))
    given = numbers[-1].group() if numbers else None
    right = float(_scoring(extra_info["source_id"])(given, {"answer": ground_truth}) == 1.0)
    if numbers and re.search(r"\w", solution_str[numbers[-1].end() :]):
        right *= 0.5 if data_source == "math_train" else 0.0
    return {"score": right, **told}


@functools.cache
def _scoring(task: str) -> Any:
    import reasoning_gym

    return reasoning_gym.get_score_answer_fn(task)


@functools.cache
def _analyzer() -> Any:
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    return SentimentIntensityAnalyzer()


def write_strata(answers: Path, folder: Path, buffer_prompts: int) -> None:
    """Write known, unknown and buffer_prompts from `candidates`, by how many of the base's draws are right.

    answers: VeRL's file of evaluated responses. Every second prompt of a stratum is for the buffer, up to half of
    `buffer_prompts` and the same number from both, and the others are evaluated. Unknown prompts with a right draw come
    first, for the buffer drops those without one. Raises InputError where a stratum has fewer than two prompts.
    """
    right: dict[int, list[float]] = defaultdict(list)
    for line in answers.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        source, _, index = row["prompt"].partition("/")
        if source == CANDIDATES:
            right[int(index)].append(row["score"])
    shares = {index: sum(scores) / len(scores) for index, scores in sorted(right.items())}
    strata = {
        "known": [index for index, share in shares.items() if share >= KNOWN],
        "unknown": sorted((index for index, share in shares.items() if share <= UNKNOWN), key=lambda i: -shares[i]),
    }
    if min(map(len, strata.values())) < 2:
        counted = ", ".join(f"{len(found)} {name}" for name, found in strata.items())
        raise InputError(f"after the math stage there are {counted} prompts of {len(shares)}; expected two of each")
    candidates = pq.read_table(folder / f"{CANDIDATES}.parquet").to_pylist()
    cached = min(buffer_prompts // 2, *(len(found) // 2 for found in strata.values()))
    kept = [candidates[index] for found in strata.values() for index in found[::2][:cached]]
    write_rows(kept, folder / "buffer_prompts.parquet")
    for name, found in strata.items():
        rows = [candidates[index] | {"data_source": name} for index in found[1::2]]
        write_rows(rows, folder / f"{name}.parquet")
