"""Sweeps: their arithmetic, stacks and options, and a regularizer of one's own."""

import dataclasses
import subprocess
import sys

import pandas as pd
import pytest
import torch

from bandit import preset, run_sweep
from bandit.engine.exact import Objective, objectives
from bandit.engine.reference import pretrain, seed_task
from bandit.sweep.figures import dynamics, tradeoff
from bandit.sweep.train import RUNS_PER_CHUNK_CPU, planned_runs, stacked
from cokl import regularizers
from cokl.support.errors import InputError
from cokl.support.results import Execution


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


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_stacks_hold_every_run_once(device):
    runs = planned_runs(preset("paper"))
    assert len(runs) == 355
    chunks = stacked(runs, device)
    assert [run for chunk in chunks for run in chunk] == runs
    assert all(len({run.seed for run in chunk}) == 1 for chunk in chunks)
    if device == "cpu":
        assert max(map(len, chunks)) <= RUNS_PER_CHUNK_CPU


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
