"""One joint step with a colocated reward model: VeRL's own server, router and reward workers around a tiny Llama.

Chat responses get the model's logit, fresh answers to the buffer's prompts the verifier's verdict, both after the
rollouts, as a colocated reward model wants it; cached answers come with theirs. The oracle is transformers' model on
the text of each dumped row. Verdicts in the buffer are the opposite of the verifier's, so that one given anew would
show.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("verl")

import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

from llm_bridge.buffer.groups import Buffer, CachedGroup, model_fingerprint
from llm_bridge.data.rows import chat_row, math_row, write_rows
from llm_bridge.experiment.config import PRESETS
from llm_bridge.experiment.jobs import chat_job, command_line, environment
from tests.llm_bridge.toy import make_model, make_tokenizer

pytestmark = pytest.mark.runs

LIMIT = 900.0
CHAT, PROMPTS, CACHED, FRESH = 4, 2, 2, 2
QUESTION = "Hi! What do you think of {} rude cats?"


@pytest.fixture(scope="module")
def stepped(tmp_path_factory) -> Path:
    """A folder in which the chat stage has taken its one step."""
    root = tmp_path_factory.mktemp("reward-model")
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    make_model(tokenizer).save_pretrained(root / "model")
    LlamaForSequenceClassification(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            num_labels=1, max_position_embeddings=4096, initializer_range=0.3, pad_token_id=tokenizer.pad_token_id,
        )
    ).save_pretrained(root / "reward")  # fmt: skip
    for folder in ("model", "reward"):
        tokenizer.save_pretrained(root / folder)
    chat = [
        chat_row("chat_train", row, str(row), [{"role": "user", "content": QUESTION.format(row + 2)}])
        for row in range(CHAT)
    ]
    write_rows(chat, root / "data" / "chat_train.parquet")
    for name in ("known", "unknown", "chat_val"):
        write_rows(chat[:1], root / "data" / f"{name}.parquet")
    groups = []
    for number in range(PROMPTS):
        row = math_row("math_train", number, str(number), f"{number}?", str(number))
        text = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
        answers = [
            np.array([*tokenizer(f"\\boxed{{{number + member}}}")["input_ids"], tokenizer.eos_token_id])
            for member in range(CACHED)
        ]
        groups.append(
            CachedGroup(
                prompt=row["prompt"],
                data_source="math_train",
                ground_truth=str(number),
                prompt_ids=np.array(tokenizer(text)["input_ids"]),
                response_ids=answers,
                rewards=np.arange(CACHED),  # the verifier would say 1, 0
            )
        )
    Buffer(tuple(groups), model_fingerprint(root / "model")).save(root / "buffer.parquet")
    config = replace(
        PRESETS["smollm2"], model=str(root / "model"), own_data=str(root / "data"), reward_function="",
        reward_model=str(root / "reward"), chat_steps=1, chat_batch=CHAT, kl_groups=2 * PROMPTS,
        group_size=FRESH, reference_group_size=CACHED, eval_samples=1,
    )  # fmt: skip
    job = chat_job(config, root, root / "model", "cokl")
    job.folder.mkdir(parents=True)
    command = command_line(
        (*job.overrides, f"trainer.rollout_data_dir={root / 'rows'}", "trainer.save_freq=-1", "trainer.logger=[file]")
    )
    with (root / "log.txt").open("w") as log:
        done = subprocess.run(
            [sys.executable, *command], cwd=root, env=environment(config, root / "metrics.jsonl"), stdout=log,
            stderr=subprocess.STDOUT, timeout=LIMIT, check=False,
        )  # fmt: skip
    assert done.returncode == 0, (root / "log.txt").read_text()[-3000:]
    return root


def rows(root: Path, kind: str) -> list[dict]:
    """The dumped rows of "chat" or "math", whose prompts only the latter has a question mark after a number in."""
    dumped = [json.loads(line) for line in (root / "rows" / "1.jsonl").read_text().splitlines()]
    return [row for row in dumped if (row["uid"].startswith("cokl-")) == (kind == "math")]


def test_chat_rows_have_the_reward_models_logit(stepped):
    tokenizer = make_tokenizer()
    model = LlamaForSequenceClassification.from_pretrained(stepped / "reward", dtype=torch.float32).eval()
    found = rows(stepped, "chat")
    assert len(found) == CHAT * FRESH
    for row in found:
        number = row["input"].split("of ")[1].split()[0]
        messages = [
            {"role": "user", "content": QUESTION.format(number)},
            {"role": "assistant", "content": row["output"].strip()},
        ]
        tokens = tokenizer(tokenizer.apply_chat_template(messages, tokenize=False), return_tensors="pt")
        with torch.no_grad():
            expected = float(model(**tokens).logits[0, 0])
        assert row["score"] == pytest.approx(expected, abs=1e-4)
    assert len({round(row["score"], 4) for row in found}) > 1


def test_cached_rows_keep_their_verdict_and_fresh_ones_get_the_verifiers(stepped):
    found = rows(stepped, "math")
    assert len(found) == PROMPTS * (CACHED + FRESH)
    cached = [row for row in found if row["output"].replace(" ", "").startswith("\\boxed{")]
    assert sorted(row["score"] for row in cached[: PROMPTS * CACHED]) == [0.0] * PROMPTS + [1.0] * PROMPTS
    for row in cached:
        said = row["output"].replace(" ", "")
        assert row["score"] == float(said != f"\\boxed{{{row['gts']}}}")
    assert {row["score"] for row in found} <= {0.0, 1.0}


def test_both_streams_train(stepped):
    metrics: dict[str, float] = {}
    for line in (stepped / "metrics.jsonl").read_text().splitlines():
        metrics |= json.loads(line)["data"]
    assert metrics["cokl/kl_rows"] == PROMPTS * (CACHED + FRESH)
    assert "val/chat_val/mean@1" in metrics or "val/chat_train/mean@1" in metrics
