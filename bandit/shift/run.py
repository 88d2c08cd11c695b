"""The task-shift lab: every mode, method, coefficient and seed, trained in stacks, saved as it is done."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch

from bandit.engine.divergence import warn_of_diverged
from bandit.engine.runs import code_behind, parameters_of, parameters_table, reference_path
from bandit.shift.config import SHIFT_PRESETS, ShiftConfig
from bandit.shift.plan import planned_runs
from bandit.shift.score import RUN
from bandit.shift.tasks import shift_task
from bandit.shift.train import base_parameters, base_rows, train
from bandit.two_tasks.plan import ShiftRun, stacks
from cokl.support.files import write_result
from cokl.support.pieces import Origin
from cokl.support.results_folder import open_folder
from cokl.support.workers import Work, Workers, one_thread, require_jobs

COLUMNS = (
    "seed",
    "mode",
    "method",
    "beta",
    "step",
    "prior_correct",
    "new_correct",
    "prior_pass_at_k",
    "conditional_kl",
    "mass_drift",
    "correct_drift",
    "incorrect_drift",
    "zero_correct_rate",
    "role",
    "kl_prompts",
)


@dataclass(frozen=True)
class Lab:
    """How runs on two tasks in turn are trained. All are functions of a module, of one configuration and its seeds.

    module: whose code results depend on. columns: of the table, role among them. plan: all runs. base: the base model's
    parameters (P,) for a seed, as `parameters_table` makes a table of them. base_rows: its metrics, a row per mode.
    train: runs of one stack, given the base model.
    """

    module: str
    columns: tuple[str, ...]
    plan: Callable[[Any], list[ShiftRun]]
    base: Callable[[Any, int], pd.DataFrame]
    base_rows: Callable[[Any, int, torch.Tensor], pd.DataFrame]
    train: Callable[[Any, list[ShiftRun], torch.Tensor], pd.DataFrame]


def shift(
    config: ShiftConfig = SHIFT_PRESETS["paper"],
    out: Path | str | None = None,
    jobs: int | None = None,
    backend: Literal["loky", "ray"] = "loky",
    progress: bool = True,
    keep_going: bool = False,
) -> pd.DataFrame:
    """Train everything that `config` asks for and return the tidy table, a row per evaluated step; see COLUMNS.

    Rows of method "base" hold the base model, at step 0. role: "report", or "selection" for the seeds on which
    coefficients are chosen. Rows of the KL-batch sweep differ from the others in kl_prompts, the prompts of the buffer
    per update. out: folder to save in and to resume from, with shift.parquet at the end; None keeps nothing. jobs:
    processes, by default one per core. backend: local processes, or a Ray cluster. progress: show bars. keep_going: go
    on with results that other code has left in `out`. A run that diverges ends in a row without metrics, at the step
    where it happened; see `bandit.engine.divergence`.
    Raises InputError for unknown methods and for a folder that cannot be used.
    """
    if out is None:
        with tempfile.TemporaryDirectory() as temporary:
            return shift(config, temporary, jobs, backend, progress, keep_going)
    folder = Path(out)
    runs = planned_runs(config)
    code = code_behind(SHIFT.module, (run.method for run in runs))
    with open_folder(folder, {**config.as_dict(), "device": "cpu"}, code, keep_going) as origin:
        table = train_plans({"": (config, runs)}, origin, jobs, backend, progress)[""]
        write_result(table, folder / "shift.parquet")
    warn_of_diverged(table, "prior_correct", RUN)
    return table


def train_plans(
    plans: Mapping[str, tuple[Any, list[ShiftRun]]],
    origin: Origin,
    jobs: int | None = None,
    backend: Literal["loky", "ray"] = "loky",
    progress: bool = True,
    lab: Lab | None = None,
) -> dict[str, pd.DataFrame]:
    """Train what is missing of several configurations' runs and return each one's table; see COLUMNS.

    plans: by the name of a subfolder, a configuration and its runs, of any seeds, modes, methods and coefficients. Runs
    that differ in their coefficient only are trained as one stack. Every table has the base model's rows, too.
    origin: the folder where results are kept, as `open_folder` gives it. lab: the task-shift lab if not given.
    """
    lab = lab or SHIFT
    require_jobs(jobs)
    workers = Workers(backend, jobs)
    bases = [(name, seed) for name, (_, runs) in plans.items() for seed in dict.fromkeys(run.seed for run in runs)]
    works = [
        Work(
            lab.base,
            (plans[name][0], seed),
            reference_path(origin.folder / name, seed),
            f"{name}: base model of seed {seed}",
        )
        for name, seed in bases
    ]
    tables = workers.do(works, origin, "base models", progress)
    parameters = {base: parameters_of(table) for base, table in zip(bases, tables, strict=True)}

    chunks = [(name, place, chunk) for name, (_, runs) in plans.items() for place, chunk in enumerate(stacks(runs))]
    works = [
        Work(
            lab.train,
            (plans[name][0], chunk, parameters[name, chunk[0].seed]),
            origin.folder / name / "runs" / f"{place:05d}-{_chunk_name(chunk[0])}.parquet",
            f"{name}: {_chunk_name(chunk[0])} at beta {', '.join(repr(run.beta) for run in chunk)}",
            len(chunk),
        )
        for name, place, chunk in chunks
    ]
    tables = workers.do(works, origin, "runs", progress)

    frames: dict[str, list[pd.DataFrame]] = {name: [] for name in plans}
    with one_thread():
        for (name, seed), base in parameters.items():
            frames[name].append(lab.base_rows(plans[name][0], seed, base))
    for (name, _, _), table in zip(chunks, tables, strict=True):
        frames[name].append(table)
    return {name: _in_order(pd.concat(frames[name], ignore_index=True), *plans[name], lab.columns) for name in plans}


def _chunk_name(run: ShiftRun) -> str:
    return f"seed-{run.seed}-{run.mode}-{run.method.name}-{run.kl_prompts}"


def _make_base(config: ShiftConfig, seed: int) -> pd.DataFrame:
    return parameters_table(base_parameters(config, seed), f"the base model of seed {seed}")


def _make_chunk(config: ShiftConfig, chunk: list[ShiftRun], parameters: torch.Tensor) -> pd.DataFrame:
    return train(config, shift_task(config, chunk[0].seed, parameters), chunk)


def _make_base_rows(config: ShiftConfig, seed: int, parameters: torch.Tensor) -> pd.DataFrame:
    return base_rows(config, shift_task(config, seed, parameters))


SHIFT = Lab("bandit.shift.train", COLUMNS, planned_runs, _make_base, _make_base_rows, _make_chunk)


def _in_order(table: pd.DataFrame, config: Any, runs: list[ShiftRun], columns: tuple[str, ...]) -> pd.DataFrame:
    """The table's rows by seed, mode, method, KL prompts, coefficient and step, with their roles."""
    names = dict.fromkeys(["base", *(run.method.name for run in runs)])
    order = {method: place for place, method in enumerate(names)}
    table = table.assign(role=table["seed"].map(config.roles))[list(columns)]
    keys = table.assign(method=table["method"].map(order))
    sorted_keys = keys.sort_values(["seed", "mode", "method", "kl_prompts", "beta", "step"])
    return table.loc[sorted_keys.index].reset_index(drop=True)
