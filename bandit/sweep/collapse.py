"""The policies of a few contexts during training, to be watched: each method at its match, as the sweep recorded it.

Then only two of each context's correct actions stay correct, and RL without a regularizer resumes from every policy, in
expectation: the plasticity lab's question from the same policies.

Axes: R runs, B contexts, K correct actions.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from bandit.engine.environment import Environment, RandomStream, some_of
from bandit.engine.reference import seed_task
from bandit.engine.runs import Run, parameters_of, reference_path
from bandit.sweep.config import SweepConfig
from bandit.sweep.score import matched_coefficients
from bandit.sweep.train import WATCHED_COLUMNS, WATCHED_FRAMES, WATCHED_SEED, Watched, moments, steps
from cokl import methods
from cokl.policy import CorrectSet
from cokl.support.files import read_parquet, read_result, write_result

STILL_CORRECT, NEW_STEPS = 2, 100
FILE = "collapse.parquet"
COLUMNS = ["method", "beta", "phase", "step", "context", "action", "probability", "pays"]


def keep(config: SweepConfig, table: pd.DataFrame, folder: Path) -> None:
    """Write `policies` of a finished sweep as FOLDER/collapse.parquet, if it is not there yet.

    Nothing is written beside chunks of an older version, which recorded no policies.
    """
    if (folder / FILE).is_file():
        return
    chunks = [read_result(path) for path in sorted((folder / "runs").glob(f"*-seed-{WATCHED_SEED}-*.parquet"))]
    if all(name in chunk for chunk in chunks for name in WATCHED_COLUMNS):
        recorded = pd.concat(chunks)[["method", "beta", *WATCHED_COLUMNS]].dropna()
        reference = parameters_of(read_parquet(reference_path(folder, WATCHED_SEED)))
        write_result(policies(config, table, recorded, reference), folder / FILE)


def policies(config: SweepConfig, table: pd.DataFrame, recorded: pd.DataFrame, reference: torch.Tensor) -> pd.DataFrame:
    """A row per method, phase, step, context and correct action, the reference's most probable one first.

    table: the sweep's. recorded: method, beta and WATCHED_COLUMNS of WATCHED_SEED's runs. reference: (P,), parameters
    that they start from. Columns: method, beta, phase (1, or 2 for the narrowed reward), step, context, action (1 to K;
    0 for all wrong ones together), probability, and pays, whether phase 2 rewards the action.
    """
    coefficients = {"none": 0.0} | matched_coefficients(table)
    chosen = [(name, coefficients[name]) for name in config.methods if name in coefficients]
    seen, learned = (
        torch.from_numpy(np.stack(list(recorded.set_index(["method", "beta"])[name].loc[chosen])))
        for name in WATCHED_COLUMNS
    )
    task = seed_task(config, WATCHED_SEED, reference)
    environment = Environment(config.environment, WATCHED_SEED)
    watched, correct = Watched(config, task), environment.correct.mask
    narrowed = some_of(correct, STILL_CORRECT, WATCHED_SEED, RandomStream.NARROWED)
    pays = torch.zeros_like(correct).scatter_(-1, narrowed, True)[watched.clusters].gather(-1, watched.actions)

    def rows(phase: int, step: int, probabilities: torch.Tensor) -> pd.DataFrame:
        shape = probabilities.shape
        index = pd.MultiIndex.from_product([range(size) for size in shape], names=["run", "context", "action"])
        every = pd.DataFrame({"probability": probabilities.flatten().numpy()}, index=index).reset_index()
        return every.assign(
            method=every["run"].map(lambda run: chosen[run][0]),
            beta=every["run"].map(lambda run: chosen[run][1]),
            phase=phase,
            step=step,
            pays=torch.nn.functional.pad(pays, (1, 0)).expand(shape).flatten().numpy(),
        )[COLUMNS]

    at = moments(config.steps, WATCHED_FRAMES)
    recorded_frames = seen.unflatten(1, (len(at), len(pays), -1)).unbind(1)
    frames = [rows(1, step, probabilities) for step, probabilities in zip(at, recorded_frames, strict=True)]
    train = dataclasses.replace(
        task.train, correct=CorrectSet(narrowed, None, correct.shape[-1])[environment.train_clusters]
    )
    new = dataclasses.replace(task, train=train, parameters=learned)
    plain = [Run(WATCHED_SEED, methods.get("none"), 0.0) for _ in chosen]
    for done, learner, _ in steps(dataclasses.replace(config, steps=NEW_STEPS), new, plain):
        if done in moments(NEW_STEPS, WATCHED_FRAMES // 2):
            frames.append(rows(2, done, watched.probabilities(learner)))
    return pd.concat(frames, ignore_index=True)
