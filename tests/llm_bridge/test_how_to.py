"""docs/how-to/verl.md as a reader would follow it on a CPU: its blocks exactly as printed, with a tiny model.

The reader brings data, a model, sampled responses and the variables that the page names.
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

from llm_bridge.tiny.make import make_tiny
from llm_bridge.tiny.tokenizer import make_tokenizer

pytestmark = [pytest.mark.docs, pytest.mark.usefixtures("only_cluster")]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "verl.md"
LIMIT = 1500.0
NEW, OLD, CACHED, FRESH, TOKENS = 64, 8, 8, 8, 1024


def blocks(language: str, page: Path = PAGE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def reader(root: Path) -> dict[str, str]:
    """The environment of a reader who has set what the page names; the cluster of a test is closed to others."""
    own = {"DATA": str(root), "MODEL": str(root / "model"), "OUT": str(root), "GPUS": "1"}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, **own, "PATH": path, "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}


def follow(root: Path, name: str, *lines: str) -> subprocess.CompletedProcess[str]:
    """Lines that the reader enters in one shell. Their output is ROOT/NAME.log too."""
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines)], cwd=root, env=reader(root), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    (root / f"{name}.log").write_text(done.stdout)
    return done


def logged(root: Path, name: str) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for line in (root / "verl_examples" / f"{name}.jsonl").read_text().splitlines():
        metrics |= json.loads(line)["data"]
    return metrics


def roomy_model(root: Path) -> None:
    """The tiny model with room for VeRL's default lengths, and a little pretraining, so that answers end."""
    make_tiny(root, pretraining_steps=300)
    config = root / "model" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "max_position_embeddings": TOKENS}))


def write_responses(root: Path, task: str, answers: list[tuple[int, str]]) -> None:
    """ROOT/responses.parquet of texts, each with the number of its prompt in the task's file."""
    tokenizer, asked = make_tokenizer(), pd.read_parquet(root / f"{task}.parquet").to_dict("records")
    rows = [
        {
            "prompt": [dict(message) for message in asked[row]["prompt"]],
            "data_source": asked[row]["data_source"],
            "ground_truth": asked[row]["reward_model"]["ground_truth"],
            "response_ids": [*tokenizer(text)["input_ids"], tokenizer.eos_token_id],
        }
        for row, text in answers
    ]
    pd.DataFrame(rows).to_parquet(root / "responses.parquet")


@pytest.fixture(scope="module")
def followed(tmp_path_factory) -> Path:
    """A folder in which the page has been followed to its end."""
    root = tmp_path_factory.mktemp("how-to")
    roomy_model(root)
    known = pd.read_parquet(root / "math_train.parquet")
    known[:NEW].to_parquet(root / "new_task.parquet")
    known[NEW : NEW + OLD].to_parquet(root / "old_task.parquet")
    truths = [int(row["ground_truth"]) for row in known["reward_model"][NEW : NEW + OLD]]
    answers = [(row, f"\\boxed{{{truths[row] + member % 2}}}") for row in range(OLD) for member in range(CACHED)]
    write_responses(root, "old_task", answers)
    (reward,) = blocks("python")
    grpo, run_grpo, buffer, cokl, run_cokl = blocks("bash")
    for name, block in (("my_reward.py", reward), ("grpo.sh", grpo), ("cokl.sh", cokl)):
        (root / name).write_text(block)
    done = follow(root, "page", run_grpo, buffer, run_cokl)
    assert done.returncode == 0, done.stdout[-3000:]
    return root


def test_the_command_of_before_is_plain_grpo(followed):
    metrics = logged(followed, "grpo")
    assert "actor/pg_loss" in metrics
    assert not any("cokl" in name for name in metrics)


def test_the_buffer_holds_the_judged_responses(followed):
    buffer = pd.read_parquet(followed / "buffer.parquet")
    assert buffer["reward"].tolist() == [1, 0] * (OLD * CACHED // 2)


def test_eight_options_more_train_with_both_streams(followed):
    metrics = logged(followed, "cokl")
    assert metrics["cokl/kl_rows"] == 8 * (CACHED + FRESH)
    assert metrics["actor/cokl/loss"] == pytest.approx(metrics["cokl/loss"], rel=1e-4)
    assert abs(metrics["cokl/loss"]) > 0.1
    assert 0 <= metrics["cokl/zero_correct"] <= 1


def test_validation_and_rl_metrics_stay_verls_own(followed):
    grpo, cokl = logged(followed, "grpo"), logged(followed, "cokl")
    assert {name for name in cokl if "cokl" not in name} == set(grpo)
    assert any(name.startswith("val-core/math_train/") for name in cokl)


def test_what_only_the_first_step_can_tell_ends_the_command_with_one_line(followed):
    """A judge that calls every stored verdict wrong, which the page says is refused, with the reason last."""
    (followed / "other.py").write_text("def compute_score(*row, **options):\n    return 0.0\n")
    run_grpo, run_cokl = blocks("bash")[1], blocks("bash")[4].strip()
    other = f"trainer.default_local_dir={followed}/other +cokl.judge={followed}/other.py:compute_score"
    done = follow(followed, "other", run_grpo.splitlines()[0], f"{run_cokl} trainer.val_before_train=False {other}")
    assert done.returncode == 2, done.stdout[-3000:]
    last = done.stdout.splitlines()[-1]
    assert last.startswith("cokl: a cached response is stored as correct and this run's judge gives it 0"), last
