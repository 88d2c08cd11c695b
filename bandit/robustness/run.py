"""The sweep, and under each alternative the runs near its matches; every one a results folder that resumes."""

from __future__ import annotations

import dataclasses
import json

import pandas as pd
from cokl.support.experiment import HERE, Execution

from bandit.robustness.config import RobustnessConfig
from bandit.sweep.plan import planned_runs
from bandit.sweep.run import run_sweep, train_planned
from bandit.sweep.score import matched_coefficients
from cokl.support.files import write_text

BASE = "base"
"""The folder, and the name, of the sweep at its defaults."""


def robustness(
    config: RobustnessConfig,
    execution: Execution = HERE,
    progress: bool = True,
) -> dict[str, pd.DataFrame]:
    """The tables of the sweep ("base") and of each alternative, on the coefficients near the sweep's matches.

    Tables and arguments are those of `bandit.run_sweep`; the whole sweep stays in FOLDER/base, each alternative in
    FOLDER/NAME. Raises InputError as that does.
    """
    with execution.results_folder() as folder:
        base = run_sweep(config.sweep, dataclasses.replace(execution, out=folder / BASE), progress)
        near = near_the_match(base, config.sweep.betas, config.neighbours)
        kept = [_is_near(method, beta, near) for method, beta in zip(base["method"], base["beta"], strict=True)]
        tables = {BASE: base[kept]}
        betas = tuple(sorted({beta for betas in near.values() for beta in betas}))
        chosen = {"coefficients": {method: list(betas) for method, betas in near.items()}}
        for name, alternative in config.alternatives().items():
            narrowed = dataclasses.replace(alternative, betas=betas or alternative.betas)
            runs = [run for run in planned_runs(narrowed) if _is_near(run.method.name, run.beta, near)]
            tables[name] = train_planned(narrowed, runs, folder / name, execution, progress, chosen)
        write_text(json.dumps(config.as_dict(), indent=2) + "\n", folder / "config.json")
    return tables


def near_the_match(table: pd.DataFrame, betas: tuple[float, ...], neighbours: int) -> dict[str, tuple[float, ...]]:
    """For each regularized method its matched coefficient and so many neighbours of the grid on either side."""
    grid = sorted(betas)
    around = {}
    for method, beta in matched_coefficients(table).items():
        matched = grid.index(beta)
        around[method] = tuple(grid[max(0, matched - neighbours) : matched + neighbours + 1])
    return around


def _is_near(method: str, beta: float, near: dict[str, tuple[float, ...]]) -> bool:
    return method in ("reference", "none") or beta in near.get(method, ())
