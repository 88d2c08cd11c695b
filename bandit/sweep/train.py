"""The sweep's runs: every method, coefficient and seed, trained in stacks on max E[Z - beta * D] (Appendix E.1).

Axes: R runs, P parameters of one run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pandas as pd
import torch

from bandit.config import TrainingConfig
from bandit.engine.divergence import cut_off, warn_of_diverged
from bandit.engine.environment import RandomStream
from bandit.engine.exact import capture, evaluate, loss_gradient, objectives, policy_metrics
from bandit.engine.networks import StackedMLP, Trainer
from bandit.engine.reference import SeedTask, layer_sizes, minibatches, seed_task
from bandit.engine.runs import Run, opened, stacks
from bandit.engine.tables import in_order
from bandit.sweep.config import PRESETS, SweepConfig
from cokl import methods
from cokl.support.files import write_parquet
from cokl.support.results import HERE, Execution, Work, compute, one_thread

# Stacked runs per process: enough to amortise the reference's share, few enough for activations to stay in cache.
RUNS_PER_CHUNK_CPU = 5
RUNS_PER_CHUNK_CUDA = 512
COLUMNS = ("seed", "method", "beta", "step", "p_correct", "conditional_kl")
"""Of the table, beside the coverages, whose names have the number of draws."""


def train(config: SweepConfig, execution: Execution = HERE) -> dict[str, pd.DataFrame]:
    """The lab's table, of `run_sweep`."""
    return {"sweep": run_sweep(config, execution)}


def run_sweep(
    config: SweepConfig = PRESETS["paper"], execution: Execution = HERE, progress: bool = True
) -> pd.DataFrame:
    """Train everything that `config` asks for and return the tidy table, a row per evaluated step.

    Columns: seed, method, beta, step, p_correct, coverage_at_K, coverage_at_K_correct, conditional_kl; K is
    `config.coverage_draws`. Rows of method "reference" hold the frozen reference. execution: where results are kept, by
    default nowhere, and who computes them. progress: show bars with rate and ETA.
    A run that diverges ends in a row without metrics, at the step where it happened; see `bandit.engine.divergence`.
    Raises InputError for unknown methods or devices and for a folder that cannot be used.
    """
    return train_planned(config, planned_runs(config), execution, progress)


def train_planned(
    config: SweepConfig,
    runs: list[Run],
    execution: Execution,
    progress: bool,
    chosen: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Train some of a sweep's runs, as `run_sweep` trains all.

    chosen: JSON values that say which runs they are, where `config` alone does not; kept with it in config.json.
    """
    with opened(config, runs, execution, progress, chosen) as here:
        works = [
            Work(
                _train_stack,
                (config, stack, here.parameters[stack[0].seed], here.device),
                here.folder / "runs" / f"{number:05d}-seed-{stack[0].seed}-{stack[0].method.name}.parquet",
                len(stack),
            )
            for number, stack in enumerate(stacked(runs, here.device))
        ]
        trained = compute(works, execution, "runs", progress)
        with one_thread():
            frames = [_reference_rows(config, seed, start, here.device) for seed, start in here.parameters.items()]
        rows = pd.concat([*frames, *trained], ignore_index=True)
        table = in_order(rows, ("reference", *config.methods), ["seed", "method", "beta", "step"])
        write_parquet(table, here.folder / "sweep.parquet")
    warn_of_diverged(table, "p_correct", ("method", "beta"))
    return table


def planned_runs(config: SweepConfig) -> list[Run]:
    """All runs of a sweep, by seed, then method in the order asked for, then coefficient. Raises InputError."""
    runs = []
    chosen = [methods.get(name) for name in config.methods]
    for seed, method in itertools.product(range(config.seeds), chosen):
        betas = [0.0] if method.regularizer is None else sorted(config.betas)
        runs += [Run(seed, method, beta) for beta in betas]
    return runs


def stacked(runs: list[Run], device: str) -> list[list[Run]]:
    """Runs that are trained as one stack: one seed, and on a CPU one method, so that no stack waits for another's."""
    if device == "cuda":
        return stacks(runs, lambda run: run.seed, RUNS_PER_CHUNK_CUDA)
    return stacks(runs, lambda run: (run.seed, run.method.name), RUNS_PER_CHUNK_CPU)


def train_stack(config: TrainingConfig, task: SeedTask, runs: list[Run]) -> pd.DataFrame:
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
    groups = objectives(runs, task.train, config.methods)
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


def _train_stack(config: SweepConfig, stack: list[Run], parameters: torch.Tensor, device: str) -> pd.DataFrame:
    return train_stack(config, seed_task(config, stack[0].seed, parameters.to(device)), stack)


def _reference_rows(config: SweepConfig, seed: int, parameters: torch.Tensor, device: str) -> pd.DataFrame:
    reference = seed_task(config, seed, parameters.to(device)).test.reference(slice(None))
    metrics = policy_metrics(config, reference, reference)
    means = {name: values.double().mean(-1).tolist() for name, values in metrics.items()}
    return pd.DataFrame({"seed": seed, "method": "reference", "beta": 0.0, "step": 0, **means})
