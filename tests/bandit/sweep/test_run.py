"""Sweeps: their table, resuming after SIGKILL, byte-identical repeats, and a regularizer of one's own."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from bandit import preset, run_sweep
from bandit.engine.exact import Objective, objectives
from bandit.engine.reference import pretrain, seed_task
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


def test_float64_agrees_with_float32(tiny):
    single = run_sweep(tiny, Execution(jobs=1), progress=False)
    double = run_sweep(dataclasses.replace(tiny, dtype="float64"), Execution(jobs=1), progress=False)
    pd.testing.assert_frame_equal(single, double, rtol=1e-3, atol=1e-4)
    assert not single["p_correct"].equals(double["p_correct"])


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
        picture(pd.DataFrame({"step": [1], "seed": [0]}))
    with pytest.raises(InputError, match="expected the table that run_sweep returns, got list"):
        picture([1])
