"""Runs that do not touch each other, a base model that has not drifted, and drifts that add up."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from bandit.engine.exact import averages
from bandit.engine.networks import StackedMLP
from bandit.engine.two_tasks.plan import ShiftRun
from bandit.engine.two_tasks.tasks import TwoTasks
from bandit.shift.train import ShiftTrainer, layer_sizes, shift_task
from cokl import methods
from cokl.regularizers.forward_kl import ForwardKL
from tests.bandit.shift.conftest import TINY_SHIFT


@pytest.fixture(scope="module")
def task() -> TwoTasks:
    """The miniature's only reported seed."""
    return shift_task(TINY_SHIFT, 0, ShiftTrainer(TINY_SHIFT).base_parameters(0))


@pytest.mark.parametrize("mode", ["exact", "sampled"])
@pytest.mark.parametrize("name", ["cokl_floor", "reverse_kl"])
def test_a_run_does_not_depend_on_its_neighbours(name, mode, task, tiny_shift):
    runs = [ShiftRun(0, mode, methods.get(name), beta, 4) for beta in (0.01, 1.0, 30.0)]
    together = ShiftTrainer(tiny_shift).train(task, runs).sort_values(["beta", "step"]).reset_index(drop=True)
    alone = pd.concat([ShiftTrainer(tiny_shift).train(task, [run]) for run in runs], ignore_index=True)
    pd.testing.assert_frame_equal(together, alone, rtol=1e-10, atol=1e-12)


def test_the_base_model_has_not_drifted_and_knows_the_prior_task_better_than_before(task, tiny_shift):
    rows = ShiftTrainer(tiny_shift).base_rows(task)
    assert rows["mode"].tolist() == ["exact", "sampled"]
    drifts = rows[["conditional_kl", "mass_drift", "correct_drift", "incorrect_drift"]].to_numpy()
    assert np.abs(drifts).max() < 1e-12
    untrained = dataclasses.replace(tiny_shift, prior_steps=0)
    before = ShiftTrainer(untrained).base_rows(shift_task(untrained, 0, ShiftTrainer(untrained).base_parameters(0)))
    assert rows["prior_correct"][0] > before["prior_correct"][0]


def test_drifts_add_up_to_the_full_kl(task, tiny_shift):
    mlp = StackedMLP(layer_sizes(tiny_shift), 1.5 * task.parameters[None])
    metrics = ShiftTrainer(tiny_shift).evaluate(task, task.buffer, mlp)
    (full,) = averages(mlp, task.prior_test, lambda policy, base: {"kl": ForwardKL().value(policy, base)})["kl"]
    total = sum(metrics[name][0] for name in ("mass_drift", "correct_drift", "incorrect_drift"))
    assert full > 1e-3
    assert total == pytest.approx(full, rel=1e-10)
