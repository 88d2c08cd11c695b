"""Training a stack of runs of one seed on the exact objective max E[Z - beta * D] (Appendix E.1).

Axes: R runs, B watched contexts, K correct actions, P parameters of one run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pandas as pd
import torch
from torch import Tensor

from bandit.config import TrainingConfig
from bandit.engine.divergence import cut_off
from bandit.engine.environment import Environment, RandomStream
from bandit.engine.exact import capture, evaluate, loss_gradient, objectives
from bandit.engine.networks import StackedMLP, Trainer
from bandit.engine.reference import SeedTask, layer_sizes, minibatches
from bandit.engine.runs import Run

WATCHED_SEED, WATCHED_CONTEXTS, WATCHED_FRAMES = 0, 2, 20
WATCHED_COLUMNS = ["watched", "parameters"]
"""Of a run's first row: its probabilities of `Watched` at all `moments`, flattened, and its final parameters (P,)."""


class Watched:
    """Of a seed's test inputs some whose policies are looked at during training, each of another cluster.

    inputs: their positions. clusters: theirs. actions: (B, K), the correct ones, the reference's most probable first.
    """

    def __init__(self, config: TrainingConfig, task: SeedTask) -> None:
        of_input = Environment(config.environment, task.seed).test_clusters.tolist()
        every = sorted(set(of_input))
        self.clusters = every[:: -(-len(every) // WATCHED_CONTEXTS)]
        self._split = task.test[torch.tensor([of_input.index(cluster) for cluster in self.clusters])]
        log_probs, correct = self._split.reference_log_probs, self._split.correct
        order = correct.gather(log_probs, 0.0).argsort(-1, descending=True)
        self.actions = correct.actions.gather(-1, order)

    def probabilities(self, mlp: StackedMLP) -> Tensor:
        """(R, B, 1 + K): every run's probability of all wrong actions together, then of the correct ones."""
        probs = mlp.forward(self._split.inputs[None]).softmax(-1)
        right = probs.gather(-1, self.actions.expand(len(probs), -1, -1))
        return torch.cat([1 - right.sum(-1, keepdim=True), right], -1).clamp_min(0).cpu()


def moments(last: int, count: int) -> list[int]:
    """Steps from 0 to `last`, at most `count` + 1, closer to each other at the start, where most happens."""
    return sorted({round(last * (number / count) ** 2) for number in range(count + 1)})


def train(config: TrainingConfig, task: SeedTask, runs: list[Run], watch: bool = False) -> pd.DataFrame:
    """Train `runs`, all of `task`'s seed, and return a row per run and evaluated step, up to where it diverges.

    watch: whether the table also has WATCHED_COLUMNS.
    """
    identity = {"seed": task.seed, "method": [r.method.name for r in runs], "beta": [r.beta for r in runs]}
    frames, seen = [], []
    watched = Watched(config, task) if watch else None
    for done, mlp, trainer in steps(config, task, runs):
        if done % config.eval_interval == 0 or done == config.steps:
            frames.append(pd.DataFrame({**identity, "step": done, **evaluate(config, task, mlp)}))
            failed_at = trainer.failed_at
        if watched and done in moments(config.steps, WATCHED_FRAMES):
            seen.append(watched.probabilities(mlp))
    table = cut_off(frames, failed_at.tolist(), ("seed", "method", "beta", "step"))
    if not watch:
        return table
    kept = torch.stack(seen, 1).flatten(1), mlp.parameters().cpu()
    first = pd.DataFrame({**identity, "step": 0}).assign(
        **{name: list(rows.numpy()) for name, rows in zip(WATCHED_COLUMNS, kept, strict=True)}
    )
    return table.merge(first, "left", on=["seed", "method", "beta", "step"])


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
