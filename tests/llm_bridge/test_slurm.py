"""docs/examples/slurm.sh on one node and on two, down to the real command's dry run; SLURM and Ray are stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "examples" / "slurm.sh"
STANDINS = {
    "scontrol": 'printf "a\\nb\\n"',
    "srun": 'echo "srun $*" >> "$CALLS"; case "$*" in *hostname*) echo "10.0.0.1 fe80::1" ;; esac',
    "ray": 'printf " 1 node_a\\n 1 node_b\\n"',
    "cokl": f'echo "cokl $* at ${{RAY_ADDRESS:-none}}" >> "$CALLS"; exec {sys.executable} -m cokl_cli "$@"',
}


def submit(folder: Path, nodes: int, *arguments: str, **variables: str) -> tuple[subprocess.CompletedProcess, str]:
    """What SLURM's batch step would run, with `--dry-run`; its output, and the calls that it made."""
    for name, body in STANDINS.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    calls = folder / "calls"
    calls.touch()
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_JOB_NODELIST": "a,b",
        "PRESET": "qwen3-0.6b",
        "CALLS": str(calls),
        "RAY_WAIT": "0",
    }
    done = subprocess.run(
        ["bash", SCRIPT, *arguments, "--dry-run"], cwd=folder, env=environment | variables, text=True,
        capture_output=True, timeout=600, check=False,
    )  # fmt: skip
    return done, calls.read_text()


def jobs(printed: str) -> list[str]:
    """The names in a dry run."""
    return [line[2:].split(":")[0] for line in printed.splitlines() if line.startswith("# ")]


def test_it_is_bash():
    assert subprocess.run(["bash", "-n", SCRIPT], check=False).returncode == 0


def test_one_node_starts_no_cluster(tmp_path):
    pytest.importorskip("verl")
    done, calls = submit(tmp_path, 1, METHODS="cokl grpo", SLURM_ARRAY_TASK_ID="1")
    assert done.returncode == 0, done.stderr
    assert jobs(done.stdout) == ["math", "chat/grpo"]
    assert "srun" not in calls
    assert calls.strip().endswith("at none")


def test_several_nodes_share_a_cluster_of_their_own(tmp_path):
    pytest.importorskip("verl")
    done, calls = submit(tmp_path, 2, "--methods", "cokl")
    assert done.returncode == 0, done.stderr
    assert jobs(done.stdout) == ["math", "buffer", "chat/cokl"]
    assert "+llm.nodes=2" in done.stdout
    started = [
        line for line in calls.splitlines() if "ray start" in line
    ]  # in either order: both run in the background
    head, worker = sorted(started, key=lambda line: "--head" not in line)
    assert "--nodelist=a" in head
    assert "--head --node-ip-address=10.0.0.1 --port=20007 --num-gpus=8 --block" in head
    assert "--nodes=1 --ntasks=1 --exclude=a" in worker
    assert "ray start --address=10.0.0.1:20007" in worker
    assert calls.splitlines()[-1].endswith("at 10.0.0.1:20007")


def test_a_cluster_that_lacks_a_node_is_one_line(tmp_path):
    done, calls = submit(tmp_path, 3)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("error: the Ray cluster at 10.0.0.1:20007 has fewer than 3")
    assert "cokl" not in calls
