"""Sweeps: their arithmetic, stacks and options."""

import dataclasses

import pandas as pd
import pytest
import torch

from bandit import preset
from bandit.engine.exact import Objective, objectives
from bandit.engine.reference import pretrain, seed_task
from bandit.sweep.analysis import Scored
from bandit.sweep.figures import tradeoff
from bandit.sweep.train import RUNS_PER_CHUNK_CPU, planned_runs, stacked
from cokl.support.errors import InputError


def test_coefficients_keep_the_precision_of_the_arithmetic(tiny):
    """A coefficient that float32 cannot hold reaches a float64 objective unrounded."""
    config = dataclasses.replace(tiny, methods=("cokl",), betas=(0.1,), seeds=1, dtype="float64")
    task = seed_task(config, 0, pretrain(config, 0, "cpu", torch.float64))
    ((_, objective),) = objectives(planned_runs(config), task.train)
    assert isinstance(objective, Objective)
    assert objective.betas.item() == 0.1


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_stacks_hold_every_run_once(device):
    runs = planned_runs(preset("paper"))
    assert len(runs) == 355
    chunks = stacked(runs, device)
    assert [run for chunk in chunks for run in chunk] == runs
    assert all(len({run.seed for run in chunk}) == 1 for chunk in chunks)
    if device == "cpu":
        assert max(map(len, chunks)) <= RUNS_PER_CHUNK_CPU


@pytest.mark.parametrize("look_at", [tradeoff, Scored.of])
def test_another_table_is_refused_in_one_line(look_at):
    with pytest.raises(InputError, match="not a sweep table; missing columns: beta, conditional_kl, method, p_correct"):
        look_at(pd.DataFrame({"step": [1], "seed": [0]}))
    with pytest.raises(InputError, match="expected the table that run_sweep returns, got list"):
        look_at([1])
