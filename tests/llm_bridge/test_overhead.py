"""The benchmark of what CoKL's rows cost an actor update runs with VeRL's own worker, in both of its forms."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("verl")


@pytest.mark.parametrize(
    ("options", "tokens"),
    [(("--groups", "10"), {"CoKL": 1.0}), (("--groups", "1", "--cached", "0,4"), {"0 cached": 1.0, "4 cached": 1.5})],
)
def test_an_update_reports_its_tokens_and_seconds_and_those_outside_the_model(options, tokens, tmp_path):
    path = tmp_path / "overhead.json"
    rest = ("--rounds", "2", "--response-length", "2", "--micro-batch", "4", "--json", str(path))
    command = [sys.executable, "-m", "benchmarks", "llm-overhead", *options, *rest]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    updates = json.loads(path.read_text())["updates"]
    assert {name: found["tokens"] for name, found in updates.items()} == {"GRPO": 1.0} | tokens
    base = updates["GRPO"]["seconds"]
    for name, found in updates.items():
        outside = found["outside_model"]
        assert all(0 <= part < whole for part, whole in zip(outside["seconds"], found["seconds"], strict=True))
        assert name == "GRPO" or min(outside["seconds"]) > 0
        for ours, times in ((found, found["seconds"]), (outside, outside["seconds"])):
            assert ours["ratio"] == pytest.approx(sum(one / other for one, other in zip(times, base, strict=True)) / 2)
        assert f"{name}: {found['tokens']:.3f} of GRPO's tokens, {found['ratio']:.4f} of its CPU seconds" in printed
