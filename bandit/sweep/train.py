"""Training a stack of runs of one seed on the exact objective max E[Z - beta * D] (Appendix E.1)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pandas as pd
import torch

from bandit.config import TrainingConfig
from bandit.engine.divergence import cut_off
from bandit.engine.environment import RandomStream
from bandit.engine.exact import capture, evaluate, loss_gradient, objectives
from bandit.engine.networks import StackedMLP, Trainer
from bandit.engine.reference import SeedTask, layer_sizes, minibatches
from bandit.engine.runs import Run


def train(config: TrainingConfig, task: SeedTask, runs: list[Run]) -> pd.DataFrame:
    """Train `runs`, all of `task`'s seed, and return a row per run and evaluated step, up to where it diverges."""
    identity = {"seed": task.seed, "method": [r.method.name for r in runs], "beta": [r.beta for r in runs]}
    frames = []
    for done, mlp, trainer in steps(config, task, runs):
        if done % config.eval_interval == 0 or done == config.steps:
            frames.append(pd.DataFrame({**identity, "step": done, **evaluate(config, task, mlp)}))
            failed_at = trainer.failed_at
    return cut_off(frames, failed_at.tolist(), ("seed", "method", "beta", "step"))


def steps(config: TrainingConfig, task: SeedTask, runs: list[Run]) -> Iterator[tuple[int, StackedMLP, Trainer]]:
    """Train `runs`, from `task.parameters` (P,) or (R, P): the steps done, from 0 on, and the networks after them."""
    mlp = StackedMLP(layer_sizes(config), task.parameters.expand(len(runs), -1))
    trainer = Trainer(mlp, config, config.learning_rate)
    groups = objectives(runs, task.train)
    batch = torch.zeros(config.batch_size, dtype=torch.int64, device=task.parameters.device)

    def step() -> None:
        trainer.step(task.train.inputs[batch][None], partial(loss_gradient, groups=groups, batch=batch))

    take_step = capture(step, trainer) if batch.is_cuda else step
    batches = minibatches(config, task.seed, RandomStream.RL_BATCHES)
    for done in range(config.steps + 1):
        yield done, mlp, trainer
        if done < config.steps:
            batch.copy_(next(batches))
            take_step()
