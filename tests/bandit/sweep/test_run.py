"""Sweeps: their table, resuming after SIGKILL, byte-identical repeats, and a regularizer of one's own."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch

from bandit import preset, run_sweep
from bandit.engine.exact import Objective, objectives
from bandit.engine.reference import pretrain, seed_task
from bandit.sweep.analysis import read_sweep
from bandit.sweep.figures import dynamics, tradeoff
from bandit.sweep.train import RUNS_PER_CHUNK_CPU, planned_runs, stacked
from cokl import regularizers
from cokl.regularizers.correct_reverse_kl import CorrectReverseKL
from cokl.support.errors import InputError
from cokl.support.results import Execution

COLUMNS = [
    "seed",
    "method",
    "beta",
    "step",
    "p_correct",
    "coverage_at_64",
    "coverage_at_64_correct",
    "conditional_kl",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of a finished miniature sweep."""
    from tests.bandit.conftest import TINY

    folder = tmp_path_factory.mktemp("finished")
    run_sweep(TINY, Execution(out=folder, jobs=1), progress=False)
    return folder


def test_table_has_a_row_per_evaluated_step(finished, tiny):
    table = pd.read_parquet(finished / "sweep.parquet")
    assert list(table.columns) == COLUMNS
    runs = tiny.seeds * (1 + 2 * len(tiny.betas))
    assert len(table) == tiny.seeds + runs * 3
    assert sorted(table["method"].unique()) == ["cokl", "forward_kl", "none", "reference"]
    assert table[table["method"] == "none"]["beta"].unique().tolist() == [0.0]
    assert sorted(table[table["method"] == "cokl"]["step"].unique()) == [0, 10, 20]
    assert table.notna().all().all()


def test_every_run_starts_at_its_reference(finished):
    table = pd.read_parquet(finished / "sweep.parquet")
    start = table[table["step"] == 0]
    for _, rows in start.groupby("seed"):
        reference = rows[rows["method"] == "reference"].iloc[0]
        for column in COLUMNS[4:]:
            assert rows[column].tolist() == pytest.approx([reference[column]] * len(rows), abs=1e-6)
    assert start["conditional_kl"].abs().max() < 1e-6


def test_config_and_environment_are_beside_the_table(finished, tiny):
    config = json.loads((finished / "config.json").read_text())
    assert config["environment"]["correct_mass"] == 0.10
    assert config["methods"] == list(tiny.methods)
    assert config["device"] == "cpu"
    (environment,) = json.loads((finished / "environment.json").read_text())
    assert environment["versions"]["torch"] == torch.__version__
    assert environment["threads_per_process"] == 1
    assert environment["device"] == "cpu"
    assert set(environment) >= {"git_commit", "platform", "cpu_count"}


def test_repeating_a_sweep_gives_the_same_bytes_with_any_number_of_processes(finished, tiny, tmp_path):
    run_sweep(tiny, Execution(out=tmp_path, jobs=1), progress=False)
    assert (tmp_path / "sweep.parquet").read_bytes() == (finished / "sweep.parquet").read_bytes()


def test_a_finished_sweep_is_not_trained_again(tiny, tmp_path):
    run_sweep(tiny, Execution(out=tmp_path, jobs=1), progress=False)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    run_sweep(tiny, Execution(out=tmp_path, jobs=1), progress=False)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()} == before


@pytest.fixture(scope="module")
def long_command() -> list[str]:
    """A command-line sweep of a few seconds, long enough to be stopped half-way."""
    from tests.bandit.conftest import TINY_FLAGS

    flags = [*TINY_FLAGS, "--methods", "none,forward_kl,cokl", "--betas", "0.01,0.1", "--seeds", "2", "--steps", "600"]
    return [sys.executable, "-m", "cokl_cli", "bandit", "sweep", *flags]


@pytest.fixture(scope="module")
def uninterrupted(long_command, tmp_path_factory) -> Path:
    """The folder of that sweep, run to its end."""
    folder = tmp_path_factory.mktemp("whole")
    subprocess.run([*long_command, "--out", str(folder)], check=True, capture_output=True)
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_sweep_goes_on_and_ends_with_the_same_bytes(stop, long_command, uninterrupted, tmp_path):
    command = [*long_command, "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "runs").glob("*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, stop)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == (-signal.SIGKILL if stop == signal.SIGKILL else 130)
    done = len(list((tmp_path / "runs").glob("*.parquet")))
    assert 0 < done < len(list((uninterrupted / "runs").glob("*.parquet")))
    assert not (tmp_path / "sweep.parquet").exists()
    if stop == signal.SIGINT:
        assert "interrupted" in errors.decode().splitlines()[-1]
        assert "Traceback" not in errors.decode()

    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "sweep.parquet").read_bytes() == (uninterrupted / "sweep.parquet").read_bytes()


def test_float64_agrees_with_float32(tiny):
    single = run_sweep(tiny, Execution(jobs=1), progress=False)
    double = run_sweep(dataclasses.replace(tiny, dtype="float64"), Execution(jobs=1), progress=False)
    pd.testing.assert_frame_equal(single, double, rtol=1e-3, atol=1e-4)
    assert not single["p_correct"].equals(double["p_correct"])


def test_another_configuration_is_refused_and_named(finished, tiny):
    with pytest.raises(InputError, match=r"another configuration \(steps: 20 there, 30 asked for\)"):
        run_sweep(dataclasses.replace(tiny, steps=30), Execution(out=finished), progress=False)


def test_a_table_without_its_columns_is_refused(finished, tmp_path):
    table = pd.read_parquet(finished / "sweep.parquet")
    table.drop(columns=["coverage_at_64", "coverage_at_64_correct"]).to_parquet(tmp_path / "sweep.parquet")
    with pytest.raises(InputError, match="not a sweep table; missing columns: coverage_at_K"):
        read_sweep(tmp_path)
    table.drop(columns="beta").to_parquet(tmp_path / "sweep.parquet")
    with pytest.raises(InputError, match="not a sweep table; missing columns: beta"):
        read_sweep(tmp_path)


def test_coefficients_keep_the_precision_of_the_arithmetic(tiny):
    """A coefficient that float32 cannot hold reaches a float64 objective unrounded."""
    config = dataclasses.replace(tiny, methods=("cokl",), betas=(0.1,), seeds=1, dtype="float64")
    task = seed_task(config, 0, pretrain(config, 0, "cpu", torch.float64))
    ((_, objective),) = objectives(planned_runs(config), task.train)
    assert isinstance(objective, Objective)
    assert objective.betas.item() == 0.1


def test_a_regularizer_of_ones_own_is_swept(tiny):
    """Only `value` is given: its gradient comes from autograd, and its results equal those of the built-in twin."""

    @regularizers.register
    class Twin(regularizers.Regularizer):
        name = "twin_of_forward_kl"
        label = "Twin"

        def value(self, policy, reference):
            return (reference.probs * (reference.log_probs - policy.log_probs)).sum(-1)

    try:
        table = run_sweep(
            dataclasses.replace(tiny, methods=("forward_kl", "twin_of_forward_kl")), Execution(jobs=2), progress=False
        )
    finally:
        del regularizers._registry["twin_of_forward_kl"]
    known, own = (
        table[table["method"] == name].drop(columns="method").reset_index(drop=True)
        for name in ("forward_kl", "twin_of_forward_kl")
    )
    pd.testing.assert_frame_equal(known, own, rtol=1e-4, atol=1e-5)


def test_regularizer_options_reach_the_regularizer(tiny):
    config = dataclasses.replace(tiny, methods=("correct_reverse_kl",), betas=(2.0,))
    restricted = dataclasses.replace(config, regularizer_options=("correct_reverse_kl.form=restricted",))
    assert planned_runs(restricted)[0].method.regularizer == CorrectReverseKL(form="restricted")
    with pytest.raises(InputError, match="fields of entropy: none"):
        planned_runs(dataclasses.replace(config, regularizer_options=("entropy.form=restricted",)))
    with pytest.raises(InputError, match="expected one of conditional, restricted"):
        planned_runs(dataclasses.replace(config, regularizer_options=("correct_reverse_kl.form=other",)))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_stacks_hold_every_run_once(device):
    runs = planned_runs(preset("paper"))
    assert len(runs) == 355
    chunks = stacked(runs, device)
    assert [run for chunk in chunks for run in chunk] == runs
    assert all(len({run.seed for run in chunk}) == 1 for chunk in chunks)
    if device == "cpu":
        assert max(map(len, chunks)) <= RUNS_PER_CHUNK_CPU


def test_presets_are_the_papers_numbers():
    config = preset("paper")
    assert config.betas == (0.0005, 0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3)
    assert (config.seeds, config.steps, config.eval_interval, config.batch_size) == (5, 1000, 100, 512)
    assert (config.learning_rate, config.max_gradient_norm, config.pretrain_steps) == (1.2e-3, 1.0, 1000)
    assert config.hidden == (128, 128)
    with pytest.raises(InputError, match="expected one of paper, quick"):
        preset("slow")


def test_training_loads_neither_the_compiler_nor_what_only_reports_need():
    """Which takes each of a small sweep's processes longer than the training."""
    script = """
import sys
from bandit.sweep.train import run_sweep
from cokl.support.results import Execution
from tests.bandit.conftest import TINY

run_sweep(TINY, Execution(jobs=1), progress=False)
print(*{"torch._dynamo", "scipy.stats", "matplotlib"} & set(sys.modules))
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "\n"


@pytest.mark.parametrize("picture", [tradeoff, dynamics])
def test_a_picture_of_another_table_is_refused_in_one_line(picture):
    with pytest.raises(InputError, match="not a sweep table; missing columns: beta, conditional_kl, method, p_correct"):
        picture.draw(pd.DataFrame({"step": [1], "seed": [0]}))
    with pytest.raises(InputError, match="expected the table that run_sweep returns, got list"):
        picture.draw([1])
