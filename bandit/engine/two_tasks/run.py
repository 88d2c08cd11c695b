"""Every mode, method, coefficient and seed of a lab on two tasks, trained in stacks, saved as it is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
from torch import Tensor

from bandit.engine.divergence import warn_of_diverged
from bandit.engine.runs import code_behind, parameters_of, parameters_table, reference_path
from bandit.engine.tables import in_order
from bandit.engine.two_tasks.plan import RUN, ShiftRun, stacked
from bandit.engine.two_tasks.train import TwoTaskTrainer
from cokl.support.experiment import Execution
from cokl.support.files import write_result
from cokl.support.results_folder import open_folder
from cokl.support.workers import Work, Workers, one_thread, require_jobs


@dataclass(frozen=True)
class Lab:
    """A lab on two tasks. name: of its table. columns: of the table, role among them. plan: a configuration's runs."""

    name: str
    columns: tuple[str, ...]
    plan: Callable[[Any], list[ShiftRun]]
    trainer: type[TwoTaskTrainer]

    @property
    def module(self) -> str:
        """Whose code results depend on."""
        return self.trainer.__module__


def train_lab(lab: Lab, config: Any, execution: Execution, progress: bool) -> pd.DataFrame:
    """Train what is missing of a configuration's runs and return their table, in its folder's NAME.parquet at the end.

    Runs that differ in their coefficient only are trained as one stack. The table has the base model's rows, too. Warns
    of runs that diverged.
    """
    runs = lab.plan(config)
    require_jobs(execution.jobs)
    workers = Workers(execution.backend, execution.jobs)
    trainer, code = lab.trainer(config), code_behind(lab.module, (run.method for run in runs))
    with (
        execution.results_folder() as folder,
        open_folder(folder, {**config.as_dict(), "device": "cpu"}, code, execution.keep_going) as origin,
    ):
        seeds = list(dict.fromkeys(run.seed for run in runs))
        works = [
            Work(_base, (trainer, seed), reference_path(folder, seed), f"base model of seed {seed}") for seed in seeds
        ]
        bases = workers.do(works, origin, "base models", progress)
        parameters = {seed: parameters_of(table) for seed, table in zip(seeds, bases, strict=True)}
        works = [
            Work(
                _runs,
                (trainer, chunk, parameters[chunk[0].seed]),
                folder / "runs" / f"{number:05d}-{_chunk_name(chunk[0])}.parquet",
                f"{_chunk_name(chunk[0])} at beta {', '.join(repr(run.beta) for run in chunk)}",
                len(chunk),
            )
            for number, chunk in enumerate(stacked(runs))
        ]
        trained = workers.do(works, origin, "runs", progress)
        with one_thread():
            rows = [trainer.base_rows(trainer.task(config, seed, parameters[seed])) for seed in seeds]
        table = _in_order(pd.concat([*rows, *trained], ignore_index=True), config, runs, lab.columns)
        write_result(table, folder / f"{lab.name}.parquet")
    warn_of_diverged(table, "prior_correct", RUN)
    return table


def _chunk_name(run: ShiftRun) -> str:
    return f"seed-{run.seed}-{run.mode}-{run.method.name}-{run.kl_prompts}"


def _base(trainer: TwoTaskTrainer, seed: int) -> pd.DataFrame:
    return parameters_table(trainer.base_parameters(seed), f"the base model of seed {seed}")


def _runs(trainer: TwoTaskTrainer, runs: list[ShiftRun], parameters: Tensor) -> pd.DataFrame:
    return trainer.train(trainer.task(trainer.config, runs[0].seed, parameters), runs)


def _in_order(table: pd.DataFrame, config: Any, runs: list[ShiftRun], columns: tuple[str, ...]) -> pd.DataFrame:
    """The table's rows by seed, mode, method, KL prompts, coefficient and step, with their roles."""
    names = dict.fromkeys(["base", *(run.method.name for run in runs)])
    table = table.assign(role=table["seed"].map(config.roles))[list(columns)]
    return in_order(table, names, ["seed", "mode", "method", "kl_prompts", "beta", "step"])
