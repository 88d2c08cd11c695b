"""An installed package's regularizer is in the bridge's plan."""

import subprocess
import sys

import pytest

from tests.package.plug_in import NAME, install

pytest.importorskip("verl")


def test_the_plan_has_it(tmp_path):
    command = [sys.executable, "-m", "cokl_cli", "llm", "run", "--preset", "smollm2", "--dry-run", "--methods", NAME]
    command += ["--out", str(tmp_path / "out")]
    plan = subprocess.run(command, env=install(tmp_path), capture_output=True, text=True, check=False)
    assert plan.returncode == 0, plan.stderr
    (line,) = [line for line in plan.stdout.splitlines() if line.startswith(f"# chat/{NAME}: ")]
    assert "32 KL, reference" in line
