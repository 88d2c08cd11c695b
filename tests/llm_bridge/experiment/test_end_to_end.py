"""The public command with real VeRL and real vLLM: all stages with two methods, two optimizer steps per rollout, killed
in the chat stage, started again.

The oracle of the resumed run is the definition of an uninterrupted one: which buffer prompts each step must have seen
follows from the seed alone, and VeRL's own dump of every step's rows says which it saw.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("verl")

from llm_bridge.buffer.groups import Buffer, DrawOrder, model_fingerprint
from llm_bridge.report.collect import read_metrics
from tests.llm_bridge.toy import make_toy, score

pytestmark = pytest.mark.runs

LIMIT = 1500.0
"""Seconds that a command may take on a loaded machine before it counts as hung."""
CHAT_STEPS = 3
KL_PROMPTS = 2
METHODS = "reverse_kl", "cokl"


def command(root: Path, *more: str) -> list[str]:
    settings = {
        "model": root.parent / "toy" / "model",
        "own-data": root.parent / "toy",
        "math-sets": "math_val",
        "reward-function": f"pkg://{score.__module__}:{score.__name__}",
        "methods": ",".join(METHODS),
        "math-steps": 2,
        "chat-steps": CHAT_STEPS,
        "math-batch": 8,
        "chat-batch": 8,
        "buffer-prompts": 12,
        "kl-groups": 2 * KL_PROMPTS,
        "eval-samples": 1,
        "eval-interval": 100,
        "save-interval": 1,
        "optimizer-steps": 2,
    }
    options = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
    overrides = [f"trainer.rollout_data_dir='{root}/rows/${{trainer.experiment_name}}'"]
    arguments = ["llm", "run", "--preset", "smollm2", "--out", str(root), *options, *more, *overrides]
    return [sys.executable, "-m", "cokl_cli", *arguments]


def finish(arguments: list[str]) -> str:
    """Run a command to its end and return what it printed; fail with it if the command fails."""
    done = subprocess.run(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def kill_when(arguments: list[str], happened: Callable[[], bool]) -> None:
    """Start a command and end it and all that it started with SIGKILL as soon as that has happened."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + LIMIT
    while not happened():
        assert process.poll() is None, "the command ended before it could be killed"
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.2)
    for victim in [*descendants(process.pid), process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    process.wait()


def descendants(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found, front = [], {pid}
    while front:
        front = {child for child, parent in parents if parent in front}
        found += sorted(front)
    return found


@pytest.fixture(scope="module")
def experiment(tmp_path_factory) -> Path:
    """GRPO on mathematics, killed in its last evaluation, full reverse KL, then CoKL, killed after its second step."""
    root = tmp_path_factory.mktemp("experiment") / "first"
    make_toy(root.parent / "toy", steps=300)
    tracker = root / "math" / "checkpoints" / "latest_checkpointed_iteration.txt"
    kill_when(command(root), lambda: tracker.is_file() and tracker.read_text() == "2")
    kill_when(command(root), (root / "chat" / "cokl" / "checkpoints" / "global_step_2" / "data.pt").exists)
    (root / "printed.txt").write_text(finish(command(root)))
    return root


def test_what_died_in_its_evaluation_is_evaluated_and_not_trained_again(experiment):
    first, again = sorted((experiment / "math" / "metrics").glob("*.jsonl"))
    assert [json.loads(line)["step"] for line in first.read_text().splitlines()] == [1]
    (evaluated,) = map(json.loads, again.read_text().splitlines())
    assert evaluated["step"] == 2
    assert {name.split("/")[1] for name in evaluated["data"]} == {"math_val", "chat_val"}


def test_the_killed_run_ends_with_as_many_steps(experiment):
    tracker = experiment / "chat" / "cokl" / "checkpoints" / "latest_checkpointed_iteration.txt"
    assert int(tracker.read_text()) == CHAT_STEPS
    attempts = sorted((experiment / "chat" / "cokl" / "metrics").glob("*.jsonl"))
    assert len(attempts) == 2
    again = [json.loads(line)["step"] for line in attempts[1].read_text().splitlines()]
    assert min(again) > 1  # it went on from a checkpoint
    logged = set(read_metrics(attempts[0].parent))
    # VeRL logs a step after its checkpoint, so the step of the checkpoint itself may have died unlogged.
    assert set(range(1, CHAT_STEPS + 1)) - logged <= {min(again) - 1}


def test_the_killed_run_saw_the_buffer_in_the_order_of_an_uninterrupted_one(experiment):
    reference = experiment / "math" / "checkpoints" / "global_step_2" / "actor" / "huggingface"
    buffer = Buffer.load(experiment / "buffer.parquet", model_fingerprint(reference)).filtered()
    order = DrawOrder(len(buffer), seed=0)
    logged = read_metrics(experiment / "chat" / "cokl" / "metrics")
    assert len(logged) >= CHAT_STEPS - 1
    for step in range(1, CHAT_STEPS + 1):
        expected = {squeezed(buffer.groups[index].prompt[0]["content"]) for index in order.draw(KL_PROMPTS)}
        if step not in logged:
            continue  # the run died before VeRL wrote this step's rows
        rows = (experiment / "rows" / "first-cokl" / f"{step}.jsonl").read_text().splitlines()
        seen = [squeezed(json.loads(row)["input"]) for row in rows]
        assert len(seen) == 8 * 8 + 2 * 8 * KL_PROMPTS
        for prompt in expected:
            assert sum(prompt in text for text in seen) == 2 * 8 * KL_PROMPTS // len(expected)  # 8 cached, 8 fresh


def squeezed(text: str) -> str:
    """Without white space, which decoding changes."""
    return "".join(text.split())


def test_two_runs_of_one_seed_draw_the_same_responses(experiment):
    """To the training prompts of the chat stage's first step, which starts from one model whatever the method; later
    ones differ. The rows that a method adds are its own.
    """
    drawn = []
    for method in METHODS:
        rows = map(json.loads, (experiment / "rows" / f"first-{method}" / "1.jsonl").read_text().splitlines())
        drawn.append(sorted((row["input"], row["output"]) for row in rows if not row["uid"].startswith("cokl-")))
    assert len(drawn[0]) == 8 * 8
    assert drawn[0] == drawn[1]
    outputs = [output for _, output in drawn[0]]
    assert len(set(outputs)) > 8  # a group's responses are not copies of one


@pytest.mark.parametrize("job", ["math", "chat/reverse_kl", "chat/cokl"])
def test_rollout_log_probabilities_agree_with_the_actors(experiment, job):
    steps = read_metrics(experiment / job / "metrics")
    trained = {step: metrics for step, metrics in steps.items() if "training/global_step" in metrics}
    assert trained
    for step, metrics in trained.items():
        assert metrics["training/rollout_probs_diff_mean"] < 1e-4, (step, metrics)


@pytest.mark.parametrize("method", METHODS)
def test_the_log_shows_both_streams(experiment, method):
    for metrics in read_metrics(experiment / "chat" / method / "metrics").values():
        assert metrics["cokl/kl_rows"] == 2 * 8 * KL_PROMPTS
        assert metrics["actor/pg_loss"] is not None
    for metrics in read_metrics(experiment / "math" / "metrics").values():
        assert "cokl/loss" not in metrics


def test_the_report_has_all_methods(experiment):
    scores = pd.read_csv(experiment / "results" / "scores.csv")
    assert set(scores["method"]) == {"base", *METHODS}
    assert scores["math_val"].between(0, 100).all()
    assert "CoKL" in (experiment / "printed.txt").read_text()
    made = {path.suffix for path in (experiment / "report").iterdir()}
    assert {".md", ".csv", ".png", ".pdf"} <= made
