"""Stacked training equals the loop that a researcher would write: one module per run, autograd, Adam, norm clipping."""

import dataclasses
import itertools

import pandas as pd
import pytest
import torch
from torch import nn

from bandit.engine.environment import Environment, RandomStream, random_generator
from bandit.engine.networks import StackedMLP, initial_parameters
from bandit.engine.reference import layer_sizes, minibatches, pretrain, seed_task
from bandit.sweep.config import SweepConfig
from bandit.sweep.train import planned_runs
from bandit.sweep.train import train_stack as train
from cokl import regularizers
from cokl.policy import CorrectSet, Policy


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


def naive_training(config: SweepConfig, seed: int, method: str, beta: float, start: torch.Tensor) -> list[float]:
    """Correctness on the test inputs at every evaluated step, from an unstacked loop in float64."""
    environment = Environment(config.environment, seed)
    mask = environment.correct.mask
    policy_net, reference_net = (module_with(start, layer_sizes(config)) for _ in range(2))
    optimizer = torch.optim.Adam(policy_net.parameters(), lr=config.learning_rate)
    batches = minibatches(config, seed, RandomStream.RL_BATCHES)
    correctness = []
    for step in range(config.steps + 1):
        if step % config.eval_interval == 0 or step == config.steps:
            with torch.no_grad():
                probs = policy_net(environment.test_inputs).softmax(-1)
            correctness.append((probs * mask[environment.test_clusters]).sum(-1).mean().item())
        if step == config.steps:
            return correctness
        batch = next(batches)
        correct = CorrectSet.from_mask(mask[environment.train_clusters[batch]])
        policy = Policy(policy_net(environment.train_inputs[batch]), correct)
        with torch.no_grad():
            reference = Policy(reference_net(environment.train_inputs[batch]), correct)
        loss = -(policy.probs * correct.mask).sum(-1).mean()
        if method != "none":
            loss = loss + beta * regularizers.get(method).value(policy, reference).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy_net.parameters(), config.max_gradient_norm)
        optimizer.step()
    raise AssertionError("unreachable")


@pytest.fixture(scope="module")
def float64_config() -> SweepConfig:
    """A miniature with every registered method, a tight gradient clip, and enough steps for Adam's state to matter."""
    from tests.bandit.conftest import TINY

    methods = ("none", *regularizers.names())
    return dataclasses.replace(
        TINY, methods=methods, dtype="float64", steps=60, eval_interval=20, max_gradient_norm=0.3
    )


@pytest.fixture(scope="module")
def stacked(float64_config) -> tuple[pd.DataFrame, torch.Tensor]:
    """All runs of seed 1 trained as one stack, and the reference's parameters that they start from."""
    parameters = pretrain(float64_config, 1, "cpu", torch.float64)
    runs = [run for run in planned_runs(float64_config) if run.seed == 1]
    return train(float64_config, seed_task(float64_config, 1, parameters), runs), parameters


@pytest.mark.parametrize("method", ["none", *regularizers.names()])
def test_stacked_training_equals_the_naive_loop(method, stacked, float64_config):
    table, parameters = stacked
    for beta in [0.0] if method == "none" else float64_config.betas:
        rows = table[(table["method"] == method) & (table["beta"] == beta)]
        expected = naive_training(float64_config, 1, method, beta, parameters)
        assert rows["p_correct"].tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_pretraining_equals_the_naive_loop(float64_config):
    config = float64_config
    environment = Environment(config.environment, 0)
    start = initial_parameters(layer_sizes(config), 1.0, random_generator(0, RandomStream.INITIALISATION))
    net = module_with(start, layer_sizes(config))
    optimizer = torch.optim.Adam(net.parameters(), lr=config.pretrain_learning_rate)
    batches = minibatches(config, 0, RandomStream.PRETRAINING_BATCHES)
    for _ in range(config.pretrain_steps):
        batch = next(batches)
        labels = environment.oracle[environment.train_clusters[batch]]
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(environment.train_inputs[batch]), labels).backward()
        nn.utils.clip_grad_norm_(net.parameters(), config.max_gradient_norm)
        optimizer.step()
    stack = StackedMLP(layer_sizes(config), pretrain(config, 0, "cpu", torch.float64)[None])
    inputs = environment.test_inputs
    torch.testing.assert_close(stack.forward(inputs[None])[0], net(inputs).detach(), rtol=1e-9, atol=1e-11)


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
