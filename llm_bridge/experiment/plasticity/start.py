"""What a run starts from: a model of its own, its prompts in both stages, and the model's responses to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import torch

from cokl.support.files import read_parquet, write_parquet
from llm_bridge.bring_buffer import bring_buffer
from llm_bridge.data.rows import write_rows
from llm_bridge.experiment.plasticity.config import PlasticityConfig
from llm_bridge.experiment.plasticity.reward import STAGES, compute_score
from llm_bridge.rewards.judge import Judge
from llm_bridge.tiny.make import make_tiny

ROWS_AT_ONCE = 512


def make_start(config: PlasticityConfig, seed: int, folder: Path) -> None:
    """Write FOLDER/model, FOLDER/{pairs, pairs_smaller_first}.parquet and, last, FOLDER/buffer.parquet.

    The prompts are the first of the tiny experiment's math training set, which is in random order.
    """
    if (folder / "buffer.parquet").is_file():
        return
    if not (folder / "model" / "tokenizer_config.json").is_file():
        make_tiny(folder, config.pretraining_steps, seed)
    rows: list[Any] = read_parquet(folder / "math_train.parquet", ("prompt",)).head(config.prompts).to_dict("records")
    for stage in STAGES:
        write_rows([row | {"data_source": stage} for row in rows], folder / f"{stage}.parquet")
    prompts = [list(row["prompt"]) for row in rows]
    responses = sample(folder / "model", prompts, config.cached, config.max_response_length, seed)
    write_parquet(responses, folder / "responses.parquet")
    buffer = bring_buffer(folder / f"{STAGES[0]}.parquet", folder / "responses.parquet", str(folder / "model"),
                          Judge(compute_score))  # fmt: skip
    buffer.save(folder / "buffer.parquet")


@torch.no_grad()
def sample(folder: Path, prompts: list[list[dict[str, str]]], count: int, longest: int, seed: int) -> pd.DataFrame:
    """`count` responses to each prompt at temperature 1: prompt (its number), response_ids, log_probs in nats."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
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
    return pd.DataFrame(lines)
