"""Runs of a stack that do not touch each other, minibatches that walk through epochs, and what training starts from."""

import dataclasses

import pandas as pd
import pytest
import torch

from bandit.engine.environment import RandomStream, random_generator
from bandit.engine.networks import initial_parameters
from bandit.engine.reference import minibatches, pretrain, seed_task
from bandit.sweep.config import SweepConfig
from bandit.sweep.train import planned_runs
from bandit.sweep.train import train_stack as train
from cokl import regularizers


@pytest.fixture(scope="module")
def float64_config() -> SweepConfig:
    """A miniature with every registered method, a tight gradient clip, and enough steps for Adam's state to matter."""
    from tests.bandit.conftest import TINY

    methods = ("none", *regularizers.names())
    return dataclasses.replace(
        TINY, methods=methods, dtype="float64", steps=60, eval_interval=20, max_gradient_norm=0.3
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-11), ("float32", 2e-5)])
def test_a_run_does_not_depend_on_its_neighbours(dtype, tolerance, float64_config):
    config = dataclasses.replace(float64_config, dtype=dtype)
    parameters = pretrain(config, 0, "cpu", getattr(torch, dtype))
    task = seed_task(config, 0, parameters)
    runs = [run for run in planned_runs(config) if run.seed == 0]
    together = train(config, task, runs)
    for run in runs:
        alone = train(config, task, [run])
        rows = together[(together["method"] == run.method.name) & (together["beta"] == run.beta)]
        pd.testing.assert_frame_equal(alone, rows.reset_index(drop=True), rtol=tolerance, atol=tolerance)


def test_minibatches_walk_through_epochs(tiny):
    config = dataclasses.replace(tiny, minibatch="epochs", batch_size=50)
    batches = minibatches(config, 0, RandomStream.RL_BATCHES)
    epoch = torch.cat([next(batches) for _ in range(4)])
    assert epoch.sort().values.tolist() == list(range(200))


def test_initial_parameters_are_torchs_default_distribution():
    parameters = initial_parameters((64, 128), 1.0, random_generator(0, RandomStream.INITIALISATION))
    assert parameters.abs().max().item() <= 1 / 8
    assert parameters.std().item() == pytest.approx(1 / 8 / 3**0.5, rel=0.02)
