"""The sweep: every method, coefficient and seed, trained in stacks over all cores, saved as it is done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from bandit.engine.divergence import warn_of_diverged
from bandit.engine.exact import policy_metrics
from bandit.engine.reference import seed_task
from bandit.engine.runs import Run, opened
from bandit.engine.tables import in_order
from bandit.sweep.config import PRESETS, SweepConfig
from bandit.sweep.plan import planned_runs, stacked
from bandit.sweep.score import RUN
from bandit.sweep.train import WATCHED_COLUMNS, WATCHED_SEED, train
from cokl.support.experiment import HERE, Execution
from cokl.support.files import write_result
from cokl.support.workers import Work, one_thread


def run_sweep(
    config: SweepConfig = PRESETS["paper"],
    execution: Execution = HERE,
    progress: bool = True,
) -> pd.DataFrame:
    """Train everything that `config` asks for and return the tidy table, a row per evaluated step.

    Columns: seed, method, beta, step, p_correct, coverage_at_K, coverage_at_K_correct, conditional_kl; K is
    `config.coverage_draws`. Rows of method "reference" hold the frozen reference. execution: where results are kept, by
    default nowhere, and who computes them. progress: show bars with rate and ETA.
    A run that diverges ends in a row without metrics, at the step where it happened; see `bandit.engine.divergence`.
    Raises InputError for unknown methods or devices and for a folder that cannot be used.
    """
    with execution.results_folder() as folder:
        return train_planned(config, planned_runs(config), folder, execution, progress, watched_seed=WATCHED_SEED)


def train_planned(
    config: SweepConfig,
    runs: list[Run],
    folder: Path,
    execution: Execution,
    progress: bool,
    chosen: Mapping[str, Any] | None = None,
    watched_seed: int | None = None,
) -> pd.DataFrame:
    """Train some of a sweep's runs, as `run_sweep` trains all.

    chosen: JSON values that say which runs they are, where `config` alone does not; kept with it in config.json.
    watched_seed: the seed whose chunks also keep what `bandit.sweep.collapse` shows; None for no seed.
    """
    with opened(config, runs, "bandit.sweep.train", folder, execution, progress, chosen) as here:
        device, parameters = here.device, here.parameters
        works = [
            Work(
                _make_chunk,
                (config, chunk, parameters[chunk[0].seed], device, chunk[0].seed == watched_seed),
                folder / "runs" / f"{number:05d}-seed-{chunk[0].seed}-{chunk[0].method.name}.parquet",
                _key(chunk),
                len(chunk),
            )
            for number, chunk in enumerate(stacked(runs, device))
        ]
        chunks = [
            chunk.drop(columns=WATCHED_COLUMNS, errors="ignore")
            for chunk in here.workers.do(works, here.origin, "runs", progress)
        ]
        with one_thread():
            frames = [_reference_rows(config, seed, parameters[seed], device) for seed in parameters]
        rows = pd.concat([*frames, *chunks], ignore_index=True)
        table = in_order(rows, ("reference", *config.methods), ["seed", "method", "beta", "step"])
        write_result(table, folder / "sweep.parquet")
    warn_of_diverged(table, "p_correct", RUN)
    return table


def _key(chunk: list[Run]) -> str:
    return ", ".join(f"{run.method.name} at beta {run.beta!r}, seed {run.seed}" for run in chunk)


def _make_chunk(
    config: SweepConfig, chunk: list[Run], parameters: torch.Tensor, device: str, watch: bool
) -> pd.DataFrame:
    return train(config, seed_task(config, chunk[0].seed, parameters.to(device)), chunk, watch)


def _reference_rows(config: SweepConfig, seed: int, parameters: torch.Tensor, device: str) -> pd.DataFrame:
    reference = seed_task(config, seed, parameters.to(device)).test.reference(slice(None))
    metrics = policy_metrics(config, reference, reference)
    means = {name: values.double().mean(-1).tolist() for name, values in metrics.items()}
    return pd.DataFrame({"seed": seed, "method": "reference", "beta": 0.0, "step": 0, **means})
