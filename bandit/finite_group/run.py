"""The finite-group lab's runs: planned, trained in stacks over all cores, and saved as each stack ends."""

from __future__ import annotations

import itertools

import pandas as pd
import torch
from cokl.support.experiment import HERE, Execution
from cokl.support.workers import Work

from bandit.engine.divergence import warn_of_diverged
from bandit.engine.environment import Environment
from bandit.engine.reference import seed_task
from bandit.engine.runs import opened
from bandit.finite_group.config import PRESETS, FiniteGroupConfig
from bandit.finite_group.plan import GroupRun, planned_runs
from bandit.finite_group.recovery import COLUMNS
from bandit.finite_group.score import ESTIMATE
from bandit.finite_group.train import IDENTITY, train
from cokl.support.files import write_result


def finite_group(
    config: FiniteGroupConfig = PRESETS["paper"],
    execution: Execution = HERE,
    progress: bool = True,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Train everything that `config` asks for; return the metrics and the measured recovery, also saved as tables.

    Both have columns seed, method, beta, groups, group_size (infinite where groups is "exact"), optimizer_steps, step.
    finite_group.parquet, a row per run and evaluated step: p_correct, coverage_at_K, coverage_at_K_correct,
    conditional_kl, zero_correct_rate; and passes, how often each training input has been drawn on average.
    recovery.parquet, a row per run, recovery step and cluster: the columns of `recovery.measure`.
    execution, progress: as `bandit.run_sweep` takes them.
    Raises InputError for unknown methods or devices and for a folder that cannot be used.
    """
    runs = planned_runs(config)
    with (
        execution.results_folder() as folder,
        opened(config, runs, "bandit.finite_group.train", folder, execution, progress) as here,
    ):
        chunks = [list(members) for _, members in itertools.groupby(runs, key=_stacked_together)]
        works = [
            Work(
                _make_chunk,
                (config, chunk, here.parameters[chunk[0].seed], here.device),
                folder / "runs" / f"{number:05d}-{_name(chunk[0])}.parquet",
                _key(chunk),
                len(chunk),
            )
            for number, chunk in enumerate(chunks)
        ]
        table = pd.concat(here.workers.do(works, here.origin, "runs", progress), ignore_index=True)
        of_clusters = table["cluster"].notna()
        metrics = table[~of_clusters].drop(columns=[name for name in COLUMNS if name != "p_correct"])
        drawn = metrics["step"] * config.batch_size / metrics["optimizer_steps"]
        metrics["passes"] = drawn / config.environment.train_inputs
        recovery = table.loc[of_clusters, [*IDENTITY, *COLUMNS]].astype({"cluster": "int64"})
        metrics, recovery = metrics.reset_index(drop=True), recovery.reset_index(drop=True)
        write_result(metrics, folder / "finite_group.parquet")
        write_result(recovery, folder / "recovery.parquet")
    warn_of_diverged(metrics, "p_correct", ESTIMATE)
    return metrics, recovery


def _stacked_together(run: GroupRun) -> tuple:
    return run.seed, run.method.name, run.groups, run.group_size, run.optimizer_steps


def _name(run: GroupRun) -> str:
    return f"seed-{run.seed}-{run.method.name}-{run.groups}-{run.group_size:g}"


def _key(chunk: list[GroupRun]) -> str:
    return ", ".join(f"{run.beta!r}" for run in chunk) + f" of {_stacked_together(chunk[0])}"


def _make_chunk(
    config: FiniteGroupConfig, chunk: list[GroupRun], parameters: torch.Tensor, device: str
) -> pd.DataFrame:
    seed = chunk[0].seed
    clusters = Environment(config.environment, seed).test_clusters.to(device)
    table = train(config, seed_task(config, seed, parameters.to(device)), clusters, chunk)
    return table.reindex(columns=[*table.columns, *(name for name in COLUMNS if name not in table)])
