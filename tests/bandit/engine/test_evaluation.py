"""Evaluation: blocks of the test inputs hold each of them once, and their sums lose no digits."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from bandit.engine import exact as training
from bandit.engine.networks import StackedMLP, initial_parameters
from bandit.engine.reference import SeedTask, layer_sizes, seed_task
from bandit.sweep import train as runner
from bandit.sweep.config import SweepConfig

RUNS = 3


@pytest.fixture(params=["float64", "float32"])
def config(request, tiny) -> SweepConfig:
    """A test set of 37 inputs, which five does not divide."""
    return dataclasses.replace(
        tiny, dtype=request.param, environment=dataclasses.replace(tiny.environment, test_inputs=37)
    )


@pytest.fixture
def task(config) -> SeedTask:
    """A task whose reference has large random parameters, so that policies differ from input to input."""
    parameters = initial_parameters(layer_sizes(config), 3.0, np.random.default_rng(10))
    return seed_task(config, 1, parameters.to(getattr(torch, config.dtype)))


@pytest.fixture
def stack(config) -> torch.Tensor:
    """Parameters (RUNS, P) of as many unlike policies."""
    rows = [initial_parameters(layer_sizes(config), 2.0 + run, np.random.default_rng(run)) for run in range(RUNS)]
    return torch.stack(rows).to(getattr(torch, config.dtype))


def test_sums_over_inputs_lose_no_digits(config, task, stack, monkeypatch):
    """Means of the very numbers that each block yields, whatever their dtype, are exact to float64's rounding."""
    values: dict[str, list[torch.Tensor]] = {}
    original = training.policy_metrics

    def recorded(config, policy, reference):
        metrics = original(config, policy, reference)
        for name, block in metrics.items():
            assert block.dtype == stack.dtype
            values.setdefault(name, []).append(block.double())
        return metrics

    whole = training.evaluate(config, task, StackedMLP(layer_sizes(config), stack))
    monkeypatch.setattr(training, "policy_metrics", recorded)
    monkeypatch.setattr(runner, "policy_metrics", recorded)
    monkeypatch.setattr(training, "_LOGITS_PER_BLOCK", 5 * RUNS * config.environment.actions)
    measured = training.evaluate(config, task, StackedMLP(layer_sizes(config), stack))
    for name, blocks in values.items():
        assert [block.shape[-1] for block in blocks] == [5] * 7 + [2]
        assert measured[name] == pytest.approx(whole[name], rel=1e-5)
        expected = [math.fsum(run.tolist()) / 37 for run in torch.cat(blocks, dim=-1)]
        assert measured[name] == pytest.approx(expected, rel=1e-14)
    values.clear()
    rows = runner._reference_rows(config, 1, task.parameters, "cpu")
    for name, blocks in values.items():
        assert rows[name].item() == pytest.approx(math.fsum(blocks[0][0].tolist()) / 37, rel=1e-14, abs=1e-14)
