"""What is measured of the engine: a step of a stack of runs, and its matrix products alone (the floor)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import torch

from bandit.engine.environment import RandomStream
from bandit.engine.exact import loss_gradient, objectives
from bandit.engine.networks import StackedMLP, Trainer
from bandit.engine.reference import SeedTask, layer_sizes, minibatches, pretrain, seed_task
from bandit.engine.runs import Run
from bandit.sweep.config import SweepConfig
from cokl import methods


def untrained_task(config: SweepConfig) -> SeedTask:
    """Seed 0's task with a reference pretrained for one step: speed does not depend on how good it is."""
    quick = dataclasses.replace(config, pretrain_steps=1)
    return seed_task(config, 0, pretrain(quick, 0, "cpu", torch.float32))


def engine_step(config: SweepConfig, task: SeedTask, method: str, runs: int) -> Callable[[], None]:
    """One step of a stack of runs that differ in beta: minibatch, forward, loss, backward, clipping, Adam."""
    trainer = Trainer(StackedMLP(layer_sizes(config), task.parameters.expand(runs, -1)), config, config.learning_rate)
    stack = [Run(0, methods.get(method), 0.01 * (1 + run)) for run in range(runs)]
    groups = objectives(stack, task.train)
    batches = minibatches(config, task.seed, RandomStream.RL_BATCHES)

    def step() -> None:
        batch = next(batches)
        trainer.step(task.train.inputs[batch][None], partial(loss_gradient, groups=groups, batch=batch))

    return step


def floor_step(config: SweepConfig, task: SeedTask, runs: int) -> Callable[[], None]:
    """One step's eight matrix products for a stack of runs, at the engine's shapes, and nothing else."""
    sizes = layer_sizes(config)
    mlp = StackedMLP(sizes, task.parameters.expand(runs, -1))
    weights, gradients = mlp.blocks[::2], mlp.gradients[::2]
    inputs = task.train.inputs[: config.batch_size].expand(runs, -1, -1)
    # Fixed values go in, so that nothing overflows or becomes denormal over the steps.
    layers = [inputs, *(torch.rand(runs, inputs.shape[1], width) for width in sizes[1:])]
    outputs = [torch.empty_like(layer) for layer in layers[1:]]

    def step() -> None:
        for layer, weight in enumerate(weights):
            torch.bmm(layers[layer], weight, out=outputs[layer])
        for layer in reversed(range(len(weights))):
            torch.bmm(layers[layer].transpose(1, 2), layers[layer + 1], out=gradients[layer])
            if layer:
                torch.bmm(layers[layer + 1], weights[layer].transpose(1, 2), out=outputs[layer - 1])

    return step
