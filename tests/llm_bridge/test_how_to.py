"""docs/how-to/verl.md as a reader would follow it: its reward function and commands, on a tiny model and a CPU.

Added is what a CPU needs, VeRL's platform for it, and options that make everything small. `trainer.test_preflight` has
the commands as they are printed, which VeRL checks and nothing runs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("verl")

import torch

from llm_bridge.data.rows import math_row, write_rows
from llm_bridge.experiment.config import PRESETS
from llm_bridge.experiment.jobs import cpu_overrides, environment, math_job
from llm_bridge.tiny.model import make_model
from llm_bridge.tiny.tokenizer import make_tokenizer

pytestmark = [pytest.mark.docs, pytest.mark.usefixtures("only_cluster")]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "verl.md"
LIMIT = 1500.0
PROMPTS, CACHED, FRESH = 4, 3, 2
SMALL = [
    "data.train_batch_size=4", "data.max_prompt_length=40", "data.max_response_length=8",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4", f"actor_rollout_ref.rollout.n={FRESH}",
    "actor_rollout_ref.rollout.max_model_len=48", "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.fsdp_config.strategy=fsdp2", "actor_rollout_ref.ref.fsdp_config.strategy=fsdp2",
    "trainer.n_gpus_per_node=1", "trainer.device=cpu", "trainer.logger=[file]", "trainer.total_training_steps=1",
    "trainer.save_freq=-1", "trainer.val_before_train=False", "trainer.test_freq=1",
    *cpu_overrides(48, FRESH),
]  # fmt: skip


def blocks(language: str, page: Path = PAGE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def followed(tmp_path_factory) -> Path:
    """A folder in which the page has been followed to its end."""
    root = tmp_path_factory.mktemp("how-to")
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    make_model(tokenizer).save_pretrained(root / "model")
    tokenizer.save_pretrained(root / "model")
    for name, numbers in (("new_task", range(20, 28)), ("old_task", range(2, 2 + PROMPTS))):
        rows = [math_row("math_train", row, str(row), str(number), str(number)) for row, number in enumerate(numbers)]
        write_rows(rows, root / f"{name}.parquet")
    answers = [(row, f"\\boxed{{{row + 2 + member % 2}}}") for row in range(PROMPTS) for member in range(CACHED)]
    pd.DataFrame(answers, columns=["prompt", "response"]).to_parquet(root / "responses.parquet")
    (root / "my_reward.py").write_text(blocks("python")[0])
    grpo, buffer, cokl = blocks("bash")
    (root / "grpo.sh").write_text(grpo)
    (root / "buffer.sh").write_text(buffer)
    (root / "cokl.sh").write_text(cokl.replace("llm_bridge.plugin", "llm_bridge.cpu,llm_bridge.plugin"))
    follow(root, "grpo", *SMALL, VERL_USE_EXTERNAL_MODULES="llm_bridge.cpu")
    follow(root, "buffer")
    follow(root, "cokl", *SMALL)
    return root


def follow(root: Path, script: str, *arguments: str, **variables: str) -> None:
    tiny = PRESETS["tiny"]
    added = environment(tiny, math_job(tiny, root, "model"), root / f"{script}.jsonl")
    added |= {"DATA": str(root), "MODEL": str(root / "model"), "OUT": str(root), "PATH": path_with_this_python()}
    command = ["bash", "-e", f"{script}.sh", *arguments]
    with (root / f"{script}.log").open("w") as log:
        done = subprocess.run(
            command, cwd=root, env=added | variables, stdout=log, stderr=subprocess.STDOUT, timeout=LIMIT, check=False
        )
    assert done.returncode == 0, (root / f"{script}.log").read_text()[-3000:]


def path_with_this_python() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def logged(root: Path, script: str) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for line in (root / f"{script}.jsonl").read_text().splitlines():
        metrics |= json.loads(line)["data"]
    return metrics


def test_the_command_of_before_is_plain_grpo(followed):
    metrics = logged(followed, "grpo")
    assert "actor/pg_loss" in metrics
    assert not any("cokl" in name for name in metrics)


def test_the_buffer_holds_the_judged_responses(followed):
    buffer = pd.read_parquet(followed / "buffer.parquet")
    assert len(buffer) == PROMPTS
    assert {tuple(rewards) for rewards in buffer["rewards"]} == {(1, 0, 1)}


def test_seven_lines_more_train_with_both_streams(followed):
    metrics = logged(followed, "cokl")
    assert metrics["cokl/kl_rows"] == 8 * (CACHED + FRESH)
    assert metrics["actor/cokl/loss"] == pytest.approx(metrics["cokl/loss"], rel=1e-4)
    assert abs(metrics["cokl/loss"]) > 0.1
    assert 0 <= metrics["cokl/zero_correct"] <= 1


def test_validation_and_rl_metrics_stay_verls_own(followed):
    grpo, cokl = logged(followed, "grpo"), logged(followed, "cokl")
    assert {name for name in cokl if "cokl" not in name} == set(grpo)
    assert any(name.startswith("val-core/math_train/") for name in cokl)
