"""An installed package's regularizer takes part in every command, by its entry point alone."""

import math
import subprocess
import sys

import pandas as pd
import pytest

from tests.package.plug_in import NAME, install


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    environment = install(tmp_path_factory.mktemp("plug_in"))

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "cokl_cli", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_sweep_trains_it(run, tmp_path):
    size = ["--steps", "20", "--eval-interval", "10", "--seeds", "1", "--betas", "0.1", "--jobs", "1"]
    run("bandit", "sweep", "--preset", "quick", *size, "--methods", f"forward_kl,{NAME}", "--out", str(tmp_path))
    table = pd.read_parquet(tmp_path / "sweep.parquet")
    ours, theirs = (
        table[table["method"] == name].drop(columns="method").reset_index(drop=True) for name in ("forward_kl", NAME)
    )
    assert len(ours) == 3
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-4)


def test_the_calculator_searches_its_optimum(run):
    """Theorem 2: Z* of forward KL."""
    _, mass, *_, certificate = run("theory", "optimum", NAME, "--q", "0.1", "--beta", "0.3").splitlines()
    assert float(mass.removeprefix("Z*")) == pytest.approx((0.7 + math.sqrt(0.49 + 0.12)) / 2, abs=1e-6)
    assert certificate.startswith("not certified")
