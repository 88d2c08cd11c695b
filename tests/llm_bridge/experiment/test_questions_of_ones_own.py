"""The preset open-questions with real VeRL and vLLM, on the toy's problems, each of which has many right answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("verl")

from llm_bridge.buffer.groups import Buffer, CachedGroup, model_fingerprint
from llm_bridge.experiment.logged import read_metrics
from tests.llm_bridge.toy import make_toy, score

pytestmark = pytest.mark.runs

LIMIT = 1500.0
"""Seconds that the command may take on a loaded machine before it counts as hung."""
PROMPTS, BATCH, GROUP, CACHED, STEPS = 6, 3, 8, 8, 2


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """The finished experiment: CoKL on six problems, evaluated on these and on two others."""
    root = tmp_path_factory.mktemp("questions")
    make_toy(root / "toy", steps=300)
    problems = pd.read_parquet(root / "toy" / "math_train.parquet")
    sets = {"chat_train": problems[:PROMPTS], "trained": problems[:PROMPTS], "held_out": problems[PROMPTS:][:2]}
    (root / "own").mkdir()
    for name, rows in sets.items():
        rows.assign(data_source=name).to_parquet(root / "own" / f"{name}.parquet")
    options = {
        "model": root / "toy" / "model",
        "own-data": root / "own",
        "reward-function": f"pkg://{score.__module__}:{score.__name__}",
        "methods": "cokl",
        "chat-steps": STEPS,
        "chat-batch": BATCH,
        "buffer-prompts": PROMPTS,
        "reference-group-size": 16,
        "max-prompt-length": 64,
        "max-response-length": 16,
        "eval-samples": 4,
        "eval-interval": 1,
        "out": root / "out",
    }
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    done = subprocess.run(
        [sys.executable, "-m", "cokl_cli", "llm", "run", "--preset", "open-questions", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    return root / "out"


def cached(run: Path) -> tuple[CachedGroup, ...]:
    """The buffer's groups, which are the starting model's."""
    return Buffer.load(run / "buffer.parquet", model_fingerprint(run.parent / "toy" / "model")).groups


def test_there_is_no_math_stage(run):
    assert {path.name for path in run.iterdir()} == {
        "config.json",
        "buffer",
        "buffer.parquet",
        "chat",
        "results",
        "report",
    }


def test_the_buffer_has_the_training_prompts_and_the_starting_models_answers(run):
    groups = cached(run)
    asked = pd.read_parquet(run.parent / "own" / "chat_train.parquet")["prompt"]
    assert {group.prompt[0]["content"] for group in groups} == {prompt[0]["content"] for prompt in asked}
    assert {len(group.response_ids) for group in groups} == {16}


def test_each_step_regularizes_its_own_prompts(run):
    """Every prompt with a right cached answer brings its eight fresh responses and eight cached ones."""
    assert all(group.rewards.any() for group in cached(run))
    steps = read_metrics(run / "chat" / "cokl" / "metrics")
    assert sorted(steps) == [0, 1, 2]
    for step in (1, 2):
        assert steps[step]["cokl/kl_rows"] == BATCH * (GROUP + CACHED)
        assert steps[step]["cokl/not_regularized"] == 0
        assert abs(steps[step]["cokl/loss"]) > 0


def test_the_base_is_measured_before_the_first_step(run):
    measured = read_metrics(run / "chat" / "cokl" / "metrics")[0]
    scores = pd.read_csv(run / "results" / "scores.csv").set_index("method")
    assert [*scores.index] == ["base", "cokl"]
    assert scores.loc["base", "trained"] == pytest.approx(100 * measured["val/trained/mean@4"])
    assert scores.loc["base", "distinct"] == measured["val/trained/distinct@4"] > 0
    assert pd.read_csv(run / "results" / "dynamics.csv")["step"].tolist() == [0, 1, 2]
