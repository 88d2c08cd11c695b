"""The pilot: what it would run for a paper's model, and what it says of steps that were logged."""

import json
import math
import subprocess
import sys

import pytest

from cokl.groups import LENGTHS
from llm_bridge.experiment.config import PRESETS
from llm_bridge.experiment.jobs import Job
from llm_bridge.experiment.pilot import STEPS, WANTED, coefficient, verdict


def test_the_pilot_of_a_paper_model_is_planned_on_one_gpu_with_every_length(tmp_path):
    pytest.importorskip("verl")
    command = [sys.executable, "-m", "cokl_cli", "llm", "pilot", "--preset", "qwen3-0.6b", "--dry-run"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path), "trainer.project_name=mine"], capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "4 jobs on 1 x 1 cuda" in done.stdout
    for length in LENGTHS:
        assert f"pilot/{length}" in done.stdout
        assert f"--length {length}: the regularizer" in done.stdout
        assert f"cokl.length: {length}" in done.stdout
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert said["trainer.total_training_steps"] == str(STEPS)
    assert (said["trainer.save_freq"], said["trainer.test_freq"]) == ("-1", "-1")
    assert said["trainer.project_name"] == "mine"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["pilot", "run"])
def test_a_dry_run_without_verl_is_one_line(command, tmp_path):
    code = (
        "import sys\nsys.modules.update(dict.fromkeys(['hydra', 'omegaconf', 'verl']))\n"
        "from cokl_cli.app import main\nsys.exit(main(sys.argv[1:]))"
    )
    given = [sys.executable, "-c", code, "llm", command, "--dry-run", "--out", str(tmp_path)]
    done = subprocess.run(given, capture_output=True, text=True, timeout=600, check=False)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, "make llm-setup" in line) == (2, True), line


@pytest.mark.parametrize(("share", "beta"), [(0.997, 1.0), (0.02, 0.1), (WANTED, 3.0)])
def test_the_coefficient_has_the_share_that_is_wanted(share, beta):
    """The regularizer's squared norm goes with the square of its coefficient; the reward's stays."""
    squared = share / (1 - share) * (coefficient(share, beta) / beta) ** 2
    assert squared / (1 + squared) == pytest.approx(WANTED)
    assert math.isnan(coefficient(1.0, beta))


def test_the_verdict_is_of_the_logged_steps(tmp_path):
    jobs = [Job(f"pilot/{length}", tmp_path / length, (), 0, {}) for length in LENGTHS]
    for place, job in enumerate(jobs[:2]):  # the third has not run
        lines = [
            {
                "cokl/gradient_share": 1.0 if step == 7 else (0.99, 0.5)[place],  # one step without an RL gradient
                "critic/score/mean": step / 10,
                "perf/time_per_step": 90.0 if step == 1 else 2.0,  # the first compiles
                "actor/perf/cpu_memory_used_gb": float(step),
            }
            for step in range(1, STEPS + 1)
        ]
        (job.folder / "metrics").mkdir(parents=True)
        text = "\n".join(json.dumps({"step": step, "data": data}) for step, data in enumerate(lines, start=1))
        (job.folder / "metrics" / "000.jsonl").write_text(text)
    said = verdict(jobs, PRESETS["tiny"]).splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in said if line.split()[0] in LENGTHS}
    assert list(rows) == list(LENGTHS)[:2]
    assert rows["token-sum"] == ["0.990", "0.0503", "0.300", "1.800", "2.0", "20.0"]
    assert rows["token-mean"][:2] == ["0.500", "0.5"]
    (advice,) = [line for line in said if "begin with" in line]
    assert "a coefficient of 0.05 and --length token-sum" in advice  # the tiny preset's own
