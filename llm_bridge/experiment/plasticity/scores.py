"""What a trained model knows, summed over all correct answers, and the rows that every table is made from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from cokl.support.files import read_parquet, write_atomically
from llm_bridge.experiment.plasticity.config import PlasticityConfig
from llm_bridge.experiment.plasticity.runs import DONE, METRICS, Run, end_of

RUNS, STEPS = "stages.csv", "steps.csv"
"""A row for each finished run and set of prompts, and for each of its steps."""
KEY = ["seed", "stage", "method", "beta"]
DRAWS = 64
"""Answers among which different correct ones are counted."""


@torch.no_grad()
def answers(folder: Path, prompts: Sequence[Any], totals: Sequence[int]) -> pd.DataFrame:
    """Every pair with the right sum and its probability as a response at temperature 1: prompt, first, second, p.

    folder: a Hugging Face model. prompts: messages. totals: the sum that each asks for.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    table = pd.DataFrame(
        [(prompt, first, total - first) for prompt, total in enumerate(totals) for first in range(total + 1)],
        columns=["prompt", "first", "second"],
    )
    messages = [[dict(message) for message in prompt] for prompt in prompts]
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


def collect(config: PlasticityConfig, seed: int, runs: Sequence[Run], folder: Path, root: Path) -> None:
    """Add the finished runs of a seed to ROOT/stages.csv and ROOT/steps.csv, replacing older rows of theirs."""
    sets = {
        "training": read_parquet(folder / "start" / "math_train.parquet").head(config.prompts),
        "held out": read_parquet(folder / "start" / "math_val.parquet").head(config.prompts),
    }
    role = "selection" if seed in config.selection_seeds else "reported"
    scored, logged = [], []
    for run in runs:
        place = folder / run.name
        if not (place / DONE).is_file():
            continue
        known = {"seed": seed, "role": role, **asdict(run)}
        model = end_of(config, run, folder) / "huggingface"
        for name, rows in sets.items():
            totals = [int(given["ground_truth"]) for given in rows["reward_model"]]
            scored.append({**known, "set": name, **measures(answers(model, list(rows["prompt"]), totals))})
        for line in (place / METRICS).read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            share = entry["data"].get("cokl/gradient_share")
            accuracy = entry["data"]["critic/score/mean"]
            logged.append({**known, "step": entry["step"], "accuracy": accuracy, "gradient_share": share})
    for name, new in ((RUNS, scored), (STEPS, logged)):
        if new:
            _add(pd.DataFrame(new), root / name)


def _add(new: pd.DataFrame, path: Path) -> None:
    table = new
    if path.is_file():
        old = pd.read_csv(path)
        ours = set(map(tuple, new[KEY].to_numpy().tolist()))
        kept = old[[tuple(key) not in ours for key in old[KEY].to_numpy().tolist()]]
        table = pd.concat([kept, new], ignore_index=True)
    order = [name for name in (*KEY, "set", "step") if name in table]
    write_atomically(path, partial(table.sort_values(order).to_csv, index=False, float_format="%.6g"))


def read_rows(root: Path, name: str) -> pd.DataFrame:
    """ROOT/NAME; an empty table if there is none."""
    return pd.read_csv(root / name) if (root / name).is_file() else pd.DataFrame(columns=[*KEY, "role", "set", "step"])


def scored_runs(root: Path, seed: int) -> set[Run]:
    """The runs of a seed that have their rows."""
    rows = read_rows(root, RUNS)
    rows = rows[rows["seed"] == seed]
    return {Run(int(stage), str(method), float(beta)) for _, stage, method, beta in rows[KEY].to_numpy().tolist()}
