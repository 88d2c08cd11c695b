"""The policies of a few contexts during training, to be watched: each method at its match, trained once more.

Then only two of each context's correct actions stay correct, and RL without a regularizer goes on from every policy, in
expectation: the plasticity lab's question from the same policies.

Axes: R runs, B contexts, K correct actions.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pandas as pd
import torch

from bandit.engine.environment import Environment, RandomStream, some_of
from bandit.engine.networks import StackedMLP
from bandit.engine.reference import Split, seed_task
from bandit.engine.runs import Run, parameters_of, reference_path
from bandit.sweep.config import SweepConfig
from bandit.sweep.score import matched_coefficients
from bandit.sweep.train import steps
from cokl import methods
from cokl.policy import CorrectSet
from cokl.support.files import read_parquet, write_result

CONTEXTS, FRAMES = 2, 20
STILL_CORRECT, NEW_STEPS = 2, 100
FILE = "collapse.parquet"
COLUMNS = ["method", "beta", "phase", "step", "context", "action", "probability", "pays"]


def keep(config: SweepConfig, table: pd.DataFrame, folder: Path) -> None:
    """Write `policies` of a finished sweep's first seed as FOLDER/collapse.parquet, if it is not there yet."""
    if not (folder / FILE).is_file():
        reference = parameters_of(read_parquet(reference_path(folder, int(table["seed"].min()))))
        write_result(policies(config, table, reference), folder / FILE)


def policies(config: SweepConfig, table: pd.DataFrame, reference: torch.Tensor) -> pd.DataFrame:
    """A row per method, phase, step, context and correct action, the reference's most probable one first.

    table: the sweep's. reference: (P,), parameters of its first seed's. Columns: method, beta, phase (1, or 2 for the
    narrowed reward), step, context, action (1 to K; 0 for all wrong ones together), probability, and pays, whether
    phase 2 rewards the action.
    """
    seed = int(table["seed"].min())
    chosen = {"none": 0.0} | matched_coefficients(table)
    runs = [
        Run(seed, methods.get(name, config.regularizer_options), chosen[name])
        for name in config.methods
        if name in chosen
    ]
    task, environment = seed_task(config, seed, reference), Environment(config.environment, seed)
    of_input = environment.test_clusters.tolist()
    clusters = sorted(set(of_input))
    shown = [of_input.index(cluster) for cluster in clusters[:: -(-len(clusters) // CONTEXTS)]]
    correct = environment.correct.mask
    narrowed = some_of(correct, STILL_CORRECT, seed, RandomStream.NARROWED).to(reference.device)
    new = dataclasses.replace(
        task,
        train=dataclasses.replace(
            task.train, correct=CorrectSet(narrowed, None, correct.shape[-1])[environment.train_clusters]
        ),
    )
    pays = torch.zeros_like(correct).scatter_(-1, narrowed.cpu(), True)[environment.test_clusters[shown]]
    watched = _Watched(task.test[torch.tensor(shown)], pays, runs)
    frames = []
    for done, mlp, _ in steps(config, task, runs):
        if done in _spread(config.steps, FRAMES):
            frames.append(watched.now(mlp, 1, done))
    second, new = dataclasses.replace(config, steps=NEW_STEPS), dataclasses.replace(new, parameters=mlp.parameters())
    plain = [Run(seed, methods.get("none"), 0.0) for _ in runs]
    for done, learner, _ in steps(second, new, plain):
        if done in _spread(NEW_STEPS, FRAMES // 2):
            frames.append(watched.now(learner, 2, done))
    return pd.concat(frames, ignore_index=True)


def _spread(last: int, count: int) -> set[int]:
    """Steps from 0 to `last`, closer to each other at the start, where most happens."""
    return {round(last * (number / count) ** 2) for number in range(count + 1)}


class _Watched:
    """Contexts whose policies are looked at."""

    def __init__(self, split: Split, pays: torch.Tensor, runs: list[Run]) -> None:
        order = split.correct.gather(split.reference_log_probs, 0.0).argsort(-1, descending=True)
        self.actions = split.correct.actions.gather(-1, order)
        self.inputs, self.pays, self.runs = split.inputs, pays.to(order.device).gather(-1, self.actions), runs

    def now(self, mlp: StackedMLP, phase: int, step: int) -> pd.DataFrame:
        """Every run's probabilities of the correct actions (R, B, K), and of all wrong ones together."""
        probs = mlp.forward(self.inputs[None]).softmax(-1)
        right = probs.gather(-1, self.actions.expand(len(probs), -1, -1))
        every = torch.cat([1 - right.sum(-1, keepdim=True), right], -1).clamp_min(0).cpu()
        pays = torch.cat([torch.zeros_like(self.pays[:, :1]), self.pays], -1).cpu()
        index = pd.MultiIndex.from_product([range(size) for size in every.shape], names=["run", "context", "action"])
        rows = pd.DataFrame({"probability": every.flatten().numpy()}, index=index).reset_index()
        return rows.assign(
            method=rows["run"].map(lambda run: self.runs[run].method.name),
            beta=rows["run"].map(lambda run: self.runs[run].beta),
            phase=phase,
            step=step,
            pays=pays.expand(len(every), -1, -1).flatten().numpy(),
        )[COLUMNS]
