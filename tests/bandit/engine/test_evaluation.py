"""Evaluation: the metrics of the sweep table against loops over the definitions."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from bandit import Environment, run_sweep
from bandit.engine import exact as training
from bandit.engine.networks import StackedMLP, initial_parameters
from bandit.engine.reference import SeedTask, layer_sizes, seed_task
from bandit.sweep import train as runner
from bandit.sweep.config import SweepConfig
from bandit.sweep.train import planned_runs
from cokl.support.results import Execution
from tests.oracles import exact

RUNS = 3


def module_with(parameters: torch.Tensor, sizes: tuple[int, ...]) -> nn.Sequential:
    """An ordinary module holding one run's parameters (P,)."""
    layers: list[nn.Module] = []
    offset = 0
    for fan_in, fan_out in itertools.pairwise(sizes):
        linear = nn.Linear(fan_in, fan_out, dtype=parameters.dtype)
        weight = parameters[offset : offset + fan_in * fan_out].view(fan_in, fan_out)
        offset += fan_in * fan_out
        with torch.no_grad():
            linear.weight.copy_(weight.T)
            linear.bias.copy_(parameters[offset : offset + fan_out])
        offset += fan_out
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def metrics_by_definition(config: SweepConfig, seed: int, policy, reference) -> dict[str, float]:
    """Each metric's mean over the test inputs; `policy` and `reference` are modules that give logits."""
    environment = Environment(config.environment, seed)
    masks = environment.correct.mask[environment.test_clusters].tolist()
    with torch.no_grad():
        logits, reference_logits = (net(environment.test_inputs.double()).tolist() for net in (policy, reference))
    draws = config.coverage_draws
    names = ("p_correct", f"coverage_at_{draws}", f"coverage_at_{draws}_correct", "conditional_kl")
    values: dict[str, list[float]] = {name: [] for name in names}
    for row, reference_row, correct in zip(logits, reference_logits, masks, strict=True):
        probs, reference_probs = exact.softmax(row, math), exact.softmax(reference_row, math)
        metrics = (
            exact.mass(probs, correct),
            exact.coverage(probs, correct, draws),
            exact.coverage(exact.conditioned(probs, correct), correct, draws),
            exact.cokl(probs, reference_probs, correct, math),
        )
        for name, value in zip(names, metrics, strict=True):
            values[name].append(value)
    return {name: math.fsum(numbers) / len(numbers) for name, numbers in values.items()}


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


@pytest.mark.parametrize("inputs_per_block", [1, 5, 36, 37, 1000])
def test_evaluation_equals_the_definitions(inputs_per_block, config, task, stack, monkeypatch):
    monkeypatch.setattr(training, "_LOGITS_PER_BLOCK", inputs_per_block * RUNS * config.environment.actions)
    sizes = layer_sizes(config)
    measured = training.evaluate(config, task, StackedMLP(sizes, stack))
    reference = module_with(task.parameters.double(), sizes)
    rel = 1e-10 if config.dtype == "float64" else 1e-4
    for run in range(RUNS):
        expected = metrics_by_definition(config, 1, module_with(stack[run].double(), sizes), reference)
        assert len(set(expected.values())) == 4
        assert {name: values[run] for name, values in measured.items()} == pytest.approx(expected, rel=rel)


def test_blocks_hold_every_test_input_once(config, task, stack, monkeypatch):
    sizes: list[int] = []
    original = training.policy_metrics

    def recorded(config, policy, reference):
        sizes.append(reference.log_probs.shape[1])
        return original(config, policy, reference)

    monkeypatch.setattr(training, "policy_metrics", recorded)
    monkeypatch.setattr(training, "_LOGITS_PER_BLOCK", 5 * RUNS * config.environment.actions)
    training.evaluate(config, task, StackedMLP(layer_sizes(config), stack))
    assert sizes == [5] * 7 + [2]


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

    monkeypatch.setattr(training, "policy_metrics", recorded)
    monkeypatch.setattr(runner, "policy_metrics", recorded)
    monkeypatch.setattr(training, "_LOGITS_PER_BLOCK", 5 * RUNS * config.environment.actions)
    measured = training.evaluate(config, task, StackedMLP(layer_sizes(config), stack))
    for name, blocks in values.items():
        expected = [math.fsum(run.tolist()) / 37 for run in torch.cat(blocks, dim=-1)]
        assert measured[name] == pytest.approx(expected, rel=1e-14)
    values.clear()
    rows = runner._reference_rows(config, 1, task.parameters, "cpu")
    for name, blocks in values.items():
        assert rows[name].item() == pytest.approx(math.fsum(blocks[0][0].tolist()) / 37, rel=1e-14, abs=1e-14)


def test_reference_rows_equal_the_definitions(config, task):
    rows = runner._reference_rows(config, 1, task.parameters, "cpu")
    reference = module_with(task.parameters.double(), layer_sizes(config))
    expected = metrics_by_definition(config, 1, reference, reference)
    assert rows[list(expected)].iloc[0].to_dict() == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_the_last_step_is_evaluated_whatever_the_interval(tiny):
    config = dataclasses.replace(tiny, methods=("none",), seeds=1, steps=25)
    for interval, steps in ((10, [0, 10, 20, 25]), (100, [0, 25])):
        config = dataclasses.replace(config, eval_interval=interval)
        table = run_sweep(config, Execution(jobs=1), progress=False)
        assert table.query("method == 'none'")["step"].tolist() == steps


def test_coefficients_are_sorted_whatever_their_order(tiny):
    """More coefficients than fit a stack: the stacks, and so the table's bytes, are the same in any order."""
    ordered = dataclasses.replace(tiny, methods=("cokl",), seeds=1, betas=(0.01, 0.02, 0.03, 0.1, 0.2, 0.3))
    mixed = dataclasses.replace(ordered, betas=(0.1, 0.3, 0.01, 0.2, 0.02, 0.03))
    assert [run.beta for run in planned_runs(mixed)] == list(ordered.betas)
    tables = [run_sweep(config, Execution(jobs=1), progress=False) for config in (ordered, mixed)]
    final = tables[1].query("method == 'cokl' and step == 20")
    assert final["beta"].tolist() == list(ordered.betas)
    assert tables[0].equals(tables[1])
