"""CoKL's options on VeRL's own launch scripts: which start as they are, which with one pasted block, and which not."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("verl")

from hydra import compose, initialize_config_module

from llm_bridge.buffer.groups import Buffer, CachedGroup, model_fingerprint
from llm_bridge.trainer.checks import look

ROOT = Path(__file__).parents[3]
FILE = Path(__file__).with_name("scripts.ini")
AS_THEY_ARE, BLOCK = "as it is", "one block"
NOT = "not"
EXPECTED = {
    "cispo_trainer/run_qwen3_8b_fsdp": AS_THEY_ARE,
    "gdpo_trainer/run_qwen3_8b_fsdp": BLOCK,
    "gmpo_trainer/run_qwen3_8b_fsdp": BLOCK,
    "gpg_trainer/run_qwen3_8b_fsdp": AS_THEY_ARE,
    "gspo_trainer/run_qwen3_8b_fsdp": AS_THEY_ARE,
    "sapo_trainer/run_qwen3_30b_a3b_fsdp": BLOCK,
    "on_policy_distillation_trainer/run_qwen3_8b_fsdp": BLOCK,
    "otb_trainer/run_qwen3_8b_fsdp": BLOCK,
    "ppo_trainer/run_qwen3_8b_fsdp": BLOCK,
    "prefix_grouper/run_qwen3_8b_fsdp": BLOCK,
    "reinforce_plus_plus_trainer/run_qwen3_8b_fsdp": AS_THEY_ARE,
    "remax_trainer/run_qwen3_8b_fsdp": BLOCK,
    "rloo_trainer/run_qwen3_8b_fsdp": AS_THEY_ARE,
    "rollout_correction/run_qwen2_5_7b_fsdp": BLOCK,
    "rollout_correction/run_qwen2_5_7b_fsdp_multi_rs": BLOCK,
    "tuning/lora/run_qwen3_8b_fsdp": AS_THEY_ARE,
    "tuning/lora/run_qwen2_5_vl_7b_fsdp": AS_THEY_ARE,
    "tuning/scaling/run_qwen2_5_72b_fsdp": AS_THEY_ARE,
    "grpo_trainer/run_qwen3_8b_fsdp": AS_THEY_ARE,
    "grpo_trainer/run_qwen3_8b_megatron": AS_THEY_ARE,
    "grpo_trainer/run_qwen3_4b_fsdp": AS_THEY_ARE,
    "grpo_trainer/run_qwen2_5_32b_fsdp": AS_THEY_ARE,
    "grpo_trainer/run_mistral_nemo_12b_skyworkrm_fsdp": NOT,
    "grpo_trainer/run_qwen3_30b_a3b_fsdp": AS_THEY_ARE,
    "grpo_trainer/run_qwen3_vl_8b_fsdp": AS_THEY_ARE,
}

KEEPS_ITS_SUBJECT = {"rollout_correction/run_qwen2_5_7b_fsdp"}
"""Of those with a block: weights of sequences, the correction that it is about, stay; `bypass_mode` goes."""


def scripts() -> dict[str, list[str]]:
    """Options by script."""
    text = "".join(line for line in FILE.read_text().splitlines(keepends=True) if not line.startswith("#"))
    sections = [section.split("]\n", 1) for section in text.split("\n[")[1:]]
    return {name: shlex.split(options) for name, options in sections}


@pytest.fixture
def ours(tmp_path) -> list[str]:
    """CoKL's options, with a model of which only the bytes matter and a buffer of 16 prompts."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    answers = [np.arange(100)] * 8
    prompts = [[{"role": "user", "content": str(number)}] for number in range(16)]
    groups = [CachedGroup(p, "", "", np.arange(100), answers, np.array([1, 0] * 4)) for p in prompts]
    Buffer(tuple(groups), model_fingerprint(model)).save(tmp_path / "buffer.parquet")
    return [
        "trainer.v1.trainer_mode=cokl",
        f"actor_rollout_ref.model.path={model}",
        "+cokl.method=cokl",
        "+cokl.beta=1.0",
        "+cokl.length=token-mean",
        f"+cokl.buffer={tmp_path}/buffer.parquet",
        "+cokl.kl_prompts=8",
    ]


def tried(options: list[str]) -> tuple[str, list[str]]:
    """How a command starts, and what is refused of it, with the block if that is pasted."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        refused = look(compose("ppo_trainer", options))[0]
        if not refused:
            return AS_THEY_ARE, []
        block = [refusal.remedy for refusal in refused if refusal.remedy]
        left = look(compose("ppo_trainer", [*options, *block]))[0]
    reasons = [refusal.reason for refusal in left or refused]
    return (NOT if left else BLOCK), reasons


def test_scripts_start_as_the_page_says(ours):
    """20 of 25 or more as they are, or with one block."""
    found = {name: tried([*options, *ours]) for name, options in scripts().items()}
    for name, (how, reasons) in found.items():
        print(f"{name}: {how}; {'; '.join(reason.partition(': expected')[0] for reason in reasons)}")
    assert {name: how for name, (how, _) in found.items()} == EXPECTED
    assert sum(how != NOT for how, _ in found.values()) >= 20


def test_the_page_counts_them():
    page = " ".join((ROOT / "docs" / "how-to" / "verl.md").read_text().split())
    alone, block, refused = (list(EXPECTED.values()).count(how) for how in (AS_THEY_ARE, BLOCK, NOT))
    assert f"added to {len(EXPECTED)} of VeRL's example scripts" in page
    assert f"{alone} start as they are, {block} with one block, {refused} not." in page
    lost = [name for name, how in EXPECTED.items() if how == BLOCK and name not in KEEPS_ITS_SUBJECT]
    assert (len(lost), block) == (9, 10)
    assert "In nine of the ten the block removes the script's own subject." in page
