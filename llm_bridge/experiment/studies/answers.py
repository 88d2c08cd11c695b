"""What a tiny model answers: the probability of every correct pair, exactly, and responses drawn from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

DRAWS = 64
"""Answers among which different correct ones are counted."""
ROWS_AT_ONCE = 512


@torch.no_grad()
def answers(folder: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """Every pair with the right sum and its probability as a response at temperature 1: prompt, first, second, p.

    folder: a Hugging Face model. rows: prompts as VeRL reads them, whose ground truth is the sum that each asks for.
    """
    totals = [int(given["ground_truth"]) for given in rows["reward_model"]]
    model, tokenizer = _load(folder)
    table = pd.DataFrame(
        [(prompt, first, total - first) for prompt, total in enumerate(totals) for first in range(total + 1)],
        columns=["prompt", "first", "second"],
    )
    messages = [[dict(message) for message in prompt] for prompt in rows["prompt"]]
    asked = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    texts = [
        f"{asked[row.prompt]}\\boxed{{ {row.first} + {row.second} }}{tokenizer.eos_token}" for row in table.itertuples()
    ]
    lengths = [len(ids) for ids in tokenizer(asked, add_special_tokens=False)["input_ids"]]
    batch = tokenizer(texts, add_special_tokens=False, padding=True, padding_side="right", return_tensors="pt")
    tokens, mask = batch["input_ids"], batch["attention_mask"]
    logits = model(input_ids=tokens, attention_mask=mask).logits[:, :-1]
    nats = logits.double().log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
    places = torch.arange(1, tokens.shape[1])
    begins = torch.tensor([lengths[prompt] for prompt in table["prompt"]])
    in_response = (places >= begins[:, None]) & mask[:, 1:].bool()
    return table.assign(p=(nats * in_response).sum(-1).exp().numpy())


def measures(table: pd.DataFrame) -> dict[str, float]:
    """Means over the prompts of `answers`: accuracy in stage 1 and in stage 2, as probabilities; `distinct`, the
    expected number of different correct answers among DRAWS; `entropy`, in nats, of the correct answers.
    """
    p = table["p"].to_numpy()
    mass = table.groupby("prompt")["p"].transform("sum").to_numpy()
    share = p / mass
    rows = table.assign(
        accuracy=p,
        accepted=p * (table["first"] < table["second"]),
        distinct=-np.expm1(DRAWS * np.log1p(-p)),
        entropy=-np.where(share > 0, share * np.log(np.maximum(share, 1e-300)), 0.0),
    )
    names = ["accuracy", "accepted", "distinct", "entropy"]
    return {str(name): float(value) for name, value in rows.groupby("prompt")[names].sum().mean().items()}


@torch.no_grad()
def sample(folder: Path, prompts: list[list[dict[str, str]]], count: int, longest: int, seed: int) -> pd.DataFrame:
    """`count` responses to each prompt at temperature 1: prompt (its number), response_ids, log_probs in nats, and
    response, the text without special tokens.
    """
    model, tokenizer = _load(folder)
    texts = tokenizer.apply_chat_template(prompts, add_generation_prompt=True, tokenize=False)
    asked = [number for number in range(len(prompts)) for _ in range(count)]
    lines = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for begin in range(0, len(asked), ROWS_AT_ONCE):
            part = asked[begin : begin + ROWS_AT_ONCE]
            batch = tokenizer([texts[number] for number in part], return_tensors="pt", padding=True,
                              add_special_tokens=False)  # fmt: skip
            output = model.generate(
                input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], do_sample=True, temperature=1.0,
                top_k=0, top_p=1.0, max_new_tokens=longest, output_logits=True, return_dict_in_generate=True,
            )  # fmt: skip
            tokens = output.sequences[:, batch["input_ids"].shape[1] :]
            log_probs = torch.stack(output.logits, 1).log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
            for number, ids, nats in zip(part, tokens.tolist(), log_probs.tolist(), strict=True):
                length = ids.index(tokenizer.eos_token_id) + 1 if tokenizer.eos_token_id in ids else len(ids)
                lines.append({"prompt": number, "response_ids": ids[:length], "log_probs": nats[:length]})
    texts = tokenizer.batch_decode([line["response_ids"] for line in lines], skip_special_tokens=True)
    return pd.DataFrame(lines).assign(response=texts)


def _load(folder: Path) -> tuple[Any, Any]:
    """A model in float32, and its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(folder)
