"""The benchmarks run and report what they promise; how fast anything is, is no test's business."""

import json
import subprocess
import sys

import joblib
import pytest
import torch

from benchmarks import naive, sweep
from cokl import regularizers
from cokl.policy import CorrectSet, Policy


def benchmark(*arguments: str) -> str:
    """What a benchmark prints."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("method", [method for method, penalty in naive.PENALTIES.items() if penalty is not None])
def test_the_naive_loop_computes_the_same_loss(method):
    generator = torch.Generator().manual_seed(0)
    logits, reference_logits = torch.randn(2, 7, 9, dtype=torch.float64, generator=generator)
    mask = torch.rand(7, 9, generator=generator) < 0.4
    mask[:, 0] = True
    policy, reference = (Policy(x, CorrectSet.from_mask(mask)) for x in (logits, reference_logits))
    penalty = naive.PENALTIES[method]
    assert penalty is not None
    torch.testing.assert_close(
        penalty(policy.log_probs, reference.log_probs, mask), regularizers.get(method).value(policy, reference)
    )


def test_sweep_reports_seconds_and_their_ratios(tmp_path):
    path = tmp_path / "sweep.json"
    printed = benchmark("sweep", "--rounds", "1", "--steps", "2", "--json", str(path))
    result = json.loads(path.read_text())
    assert all(set(seconds) == set(naive.PENALTIES) for seconds in result["by_method"].values())
    assert all(value > 0 for seconds in result["by_method"].values() for value in seconds.values())
    for name in ("naive_over_engine", "engine_over_floor"):
        found = result[name]
        low, high = found["interval_95"]
        assert 0 < low <= found["median"] <= high
        assert found["blocks"] == result["cores"] * len(naive.PENALTIES)
        assert f"{name.replace('_', ' ')}: {found['median']:.2f}, 95% interval {low:.2f} to {high:.2f}" in printed


def test_a_ratio_is_taken_within_a_turn(monkeypatch):
    """So that a slow moment, which falls on floor, engine and naive loop alike, is not in it."""
    turns = [(1.0 * slow, 2.0 * slow, 6.0 * slow) for slow in (1, 10, 3)]
    monkeypatch.setattr(sweep, "_turns", lambda method, steps: turns)
    with joblib.parallel_config(backend="sequential"):
        result = sweep.measure(rounds=1, steps=3, full=False)
    for name, ratio in (("engine_over_floor", 2), ("naive_over_engine", 3)):
        assert (result[name]["median"], result[name]["interval_95"]) == (ratio, [ratio, ratio])
    for name, seconds in (("floor_s", 3), ("engine_s", 6), ("naive_s", 18)):
        assert result["by_method"][name] == dict.fromkeys(naive.PENALTIES, 1000 / result["cores"] * seconds)
