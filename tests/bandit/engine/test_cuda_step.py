"""The training step can be captured as a CUDA graph: it stays on the device and never waits for a value.

Checked without a GPU on meta tensors: they have a device and a shape and no values, so reading a value back raises,
and so does mixing them with tensors of another device.
"""

import dataclasses
from functools import partial

import pytest
import torch

from bandit.engine.exact import loss_gradient, objectives
from bandit.engine.fused import FusedObjective
from bandit.engine.networks import StackedMLP, Trainer
from bandit.engine.reference import SeedTask, Split, layer_sizes
from bandit.sweep.train import planned_runs
from cokl import regularizers
from cokl.policy import CorrectSet


@pytest.fixture
def config(tiny):
    """Every registered method, stacked into one chunk as on a GPU."""
    return dataclasses.replace(tiny, methods=("none", *regularizers.names()))


def task_without_values(config) -> SeedTask:
    """A task of the right shapes."""
    environment = config.environment
    sizes = layer_sizes(config)
    count = sum((a + 1) * b for a, b in zip(sizes, sizes[1:], strict=False))  # noqa: RUF007
    actions = torch.zeros(environment.train_inputs, environment.correct_actions, dtype=torch.int64, device="meta")
    split = Split(
        torch.empty(environment.train_inputs, environment.input_dim, device="meta"),
        torch.empty(environment.train_inputs, environment.actions, device="meta"),
        CorrectSet(actions, None, environment.actions),
    )
    return SeedTask(0, torch.empty(count, device="meta"), split, split)


def test_the_step_stays_on_the_device_and_reads_no_value_back(config, monkeypatch):
    runs = [run for run in planned_runs(config) if run.seed == 0]
    task = task_without_values(config)
    trainer = Trainer(StackedMLP(layer_sizes(config), task.parameters.expand(len(runs), -1)), config, 1e-3)
    monkeypatch.setattr(trainer, "update", lambda: None)  # PyTorch's own, which does not know meta tensors
    groups = objectives(runs, task.train)
    assert len(groups) == len(config.methods)
    assert not any(isinstance(objective, FusedObjective) for _, objective in groups)
    batch = torch.zeros(config.batch_size, dtype=torch.int64, device="meta")
    with torch.no_grad():
        trainer.step(task.train.inputs[batch][None], partial(loss_gradient, groups=groups, batch=batch))
    assert trainer.mlp.flat_gradient.device.type == "meta"


@pytest.mark.parametrize(
    "reads", [lambda x: x.sum().item(), lambda x: bool((x > 0).any()), lambda x: x + torch.ones(3)]
)
def test_meta_tensors_catch_what_a_captured_step_must_not_do(reads):
    with pytest.raises((RuntimeError, NotImplementedError)):
        reads(torch.empty(3, device="meta"))


def test_tf32_is_off():
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32
