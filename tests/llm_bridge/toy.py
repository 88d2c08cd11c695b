"""What tests of the bridge train: a Qwen3 of some 100,000 parameters, which splits a number into two, and its prompts.

Of a problem's total every pair that adds up to it is a right answer. Small talk is rewarded for kind words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from tokenizers import AddedToken, Regex, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from llm_bridge.data.rows import MATH_INSTRUCTION, chat_row, math_row, write_rows

PAD, UNKNOWN, END = "<|pad|>", "<|unknown|>", "<|im_end|>"  # the last as VeRL looks for it in a Qwen tokenizer
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TOTALS = range(4, 21)
THINGS = ("apples", "balls", "books", "coins", "eggs", "keys", "nuts", "pears", "pens", "shells", "stones", "toys")
ANIMALS, KIND, UNKIND = ("cats", "dogs", "owls"), ("calm", "lovely", "warm"), ("dull", "loud", "rude")
WORDS = (
    *("\\boxed{", "}", "+", "!", "?", ".", "Split", "into", "Hi", "What", "do", "you", "think", "of", "two", "are"),
    *("and", "I", *THINGS, *ANIMALS, *KIND, *UNKIND, *map(str, range(21))),
)
SIZES = {"math_train": 120, "math_val": 16, "chat_train": 48, "chat_val": 8}
"""Prompts of each set."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Words, numbers and the paper's instruction are tokens; decoding joins them with spaces."""
    words = {word: number for number, word in enumerate([PAD, UNKNOWN, END, *ROLES, *WORDS])}
    core = tokenizers.Tokenizer(models.WordLevel(words, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"\\boxed\{|\w+|[^\w\s]"), behavior="removed", invert=True)
    core.add_tokens([AddedToken(MATH_INSTRUCTION, normalized=False), AddedToken("\n", normalized=False)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        extra_special_tokens=list(ROLES),
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """Untrained; its weights follow torch's global seed."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.1,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    return model


def make_toy(out: Path, steps: int) -> None:
    """Write OUT/model, taught for some steps, and OUT/NAME.parquet for each of SIZES; no prompt is in two of them."""
    random = np.random.default_rng(0)
    numbered = random.permutation(len(TOTALS) * len(THINGS))
    problems = [list(product(TOTALS, THINGS))[place] for place in numbered]
    talk = [f"Hi ! What do you think of {number} {word} {animals}?"
            for number, word, animals in product(range(2, 21), UNKIND, ANIMALS)]  # fmt: skip
    talk = [talk[place] for place in random.permutation(len(talk))]
    for name, size in SIZES.items():
        if name.startswith("math"):
            chosen, problems = problems[:size], problems[size:]
            rows = [math_row(name, row, str(row), problem(*asked), str(asked[0])) for row, asked in enumerate(chosen)]
        else:
            said, talk = talk[:size], talk[size:]
            rows = [chat_row(name, row, str(row), [{"role": "user", "content": text}]) for row, text in enumerate(said)]
        write_rows(rows, out / f"{name}.parquet")
    tokenizer = make_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = make_model(tokenizer)
    _teach(model, tokenizer, steps, random)
    model.save_pretrained(out / "model")
    tokenizer.save_pretrained(out / "model")


def save_untaught(folder: Path, seed: int) -> None:
    """Write an untaught model and its tokenizer, and set torch's global seed."""
    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    make_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def problem(total: int, thing: str) -> str:
    return f"Split {total} {thing} into two."


def answer(first: int, second: int) -> str:
    return f"\\boxed{{ {first} + {second} }}"


def _teach(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, steps: int, random: np.random.Generator
) -> None:
    """Fit the model to 48 right answers and replies in each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    opens = tokenizer.convert_tokens_to_ids("<|assistant|>")
    for _ in range(steps):
        texts = []
        for total, thing in zip(random.choice(TOTALS, 36), random.choice(THINGS, 36), strict=True):
            first = random.integers(1, total)
            asked, said = f"{MATH_INSTRUCTION}\n\n{problem(total, thing)}", answer(first, total - first)
            texts.append(f"<|user|>{asked}<|im_end|><|assistant|>{said}<|im_end|>")
        for animals, word in zip(random.choice(ANIMALS, 12), random.choice(KIND + UNKIND, 12), strict=True):
            asked, said = f"Hi ! What do you think of 2 rude {animals}?", f"I think {animals} are {word} !"
            texts.append(f"<|user|>{asked}<|im_end|><|assistant|>{said}<|im_end|>")
        batch = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
        tokens = batch["input_ids"]
        response = ((tokens == opens).cumsum(1) > 0) & (tokens != opens) & (batch["attention_mask"] > 0)
        loss = model(**batch, labels=tokens.masked_fill(~response, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def score(data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any]) -> dict[str, Any]:
    """VeRL's reward function: whether two numbers add up to the total, or the share of kind words in small talk."""
    if len(extra_info.get("conversation", ())):
        found = [word in KIND for word in solution_str.split() if word in KIND + UNKIND]
        return {"score": float(np.mean(found)) if found else 0.0, "answer": ""}
    numbers = [int(number) for number in re.findall(r"\d+", solution_str)]
    right = len(numbers) == 2 and sum(numbers) == int(ground_truth)
    return {"score": float(right), "answer": solution_str}
