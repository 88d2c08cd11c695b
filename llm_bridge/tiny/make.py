"""Everything the tiny preset starts from: tokenizer, model and the six sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from llm_bridge.data.rows import chat_row, math_row, write_rows
from llm_bridge.tiny import language
from llm_bridge.tiny.model import make_model, pretrain
from llm_bridge.tiny.tokenizer import make_tokenizer

SIZES: dict[str, int] = {
    "math_train": 2000,
    "math_val": 128,
    "math500": 64,
    "olympiad": 64,
    "chat_train": 2000,
    "chat_val": 64,
}
"""Rows of each set."""


def make_tiny(out: Path, pretraining_steps: int = 1000, seed: int = 0) -> None:
    """Write OUT/model (weights, tokenizer, generation settings) and OUT/{math_train, ...}.parquet.

    The same arguments give the same files on the same machine.
    """
    write_tiny_data(out, seed)
    tokenizer = make_tokenizer()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = make_model(tokenizer)
            pretrain(model, tokenizer, pretraining_steps, seed)
    finally:
        torch.set_num_threads(threads)
    model.save_pretrained(out / "model")
    tokenizer.save_pretrained(out / "model")


def write_tiny_data(out: Path, seed: int) -> None:
    """Write the six sets; no prompt is in two of them."""
    random = np.random.default_rng([seed, 1])
    pools = {kind: random.permutation(np.array(language.problems(kind), dtype=object)) for kind in language.KIND_SHARES}
    taken = dict.fromkeys(pools, 0)

    def take(kind: language.Kind, count: int) -> list[language.Problem]:
        taken[kind] += count
        return list(pools[kind][taken[kind] - count : taken[kind]])

    def mixture(count: int) -> list[language.Problem]:
        counts = {kind: round(share * count) for kind, share in language.KIND_SHARES.items()}
        counts["plain"] += count - sum(counts.values())
        mixed = [problem for kind, number in counts.items() for problem in take(kind, number)]
        return [mixed[index] for index in random.permutation(len(mixed))]

    math: dict[str, list[language.Problem]] = {
        "math_train": mixture(SIZES["math_train"]),
        "math_val": mixture(SIZES["math_val"]),
        "math500": take("double", SIZES["math500"]),
        "olympiad": take("sum", SIZES["olympiad"]),
    }
    for source, chosen in math.items():
        rows = [
            math_row(source, index, f"tiny/{source}/{index}", problem.text, str(problem.total))
            for index, problem in enumerate(chosen)
        ]
        write_rows(rows, out / f"{source}.parquet")
    prompts = random.permutation(language.small_talk())
    chat: dict[str, np.ndarray] = {
        "chat_train": prompts[: SIZES["chat_train"]],
        "chat_val": prompts[SIZES["chat_train"] :][: SIZES["chat_val"]],
    }
    for source, texts in chat.items():
        rows = [
            chat_row(source, index, f"tiny/{source}/{index}", [{"role": "user", "content": str(text)}])
            for index, text in enumerate(texts)
        ]
        write_rows(rows, out / f"{source}.parquet")
