"""The engine's matrix products alone: the floor."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from bandit.engine.networks import StackedMLP
from bandit.engine.reference import SeedTask, layer_sizes, pretrain, seed_task
from bandit.sweep.config import SweepConfig


def untrained_task(config: SweepConfig, device: str) -> SeedTask:
    """Seed 0's task with a reference pretrained for one step: speed does not depend on how good it is."""
    quick = dataclasses.replace(config, pretrain_steps=1)
    return seed_task(config, 0, pretrain(quick, 0, device, torch.float32))


def floor_step(config: SweepConfig, task: SeedTask, runs: int) -> Callable[[], None]:
    """One step's eight matrix products for a stack of runs, at the engine's shapes, and nothing else."""
    sizes = layer_sizes(config)
    mlp = StackedMLP(sizes, task.parameters.expand(runs, -1))
    weights, gradients = mlp.blocks[::2], mlp.gradients[::2]
    inputs = task.train.inputs[: config.batch_size].expand(runs, -1, -1)
    # Fixed values go in, so that nothing overflows or becomes denormal over the steps.
    layers = [inputs, *(torch.rand(runs, inputs.shape[1], width).to(inputs) for width in sizes[1:])]
    outputs = [torch.empty_like(layer) for layer in layers[1:]]

    def step() -> None:
        for layer, weight in enumerate(weights):
            torch.bmm(layers[layer], weight, out=outputs[layer])
        for layer in reversed(range(len(weights))):
            torch.bmm(layers[layer].transpose(1, 2), layers[layer + 1], out=gradients[layer])
            if layer:
                torch.bmm(layers[layer + 1], weights[layer].transpose(1, 2), out=outputs[layer - 1])

    return step
