"""The frozen references of a finished sweep, and what its networks lack of the optima that they allow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from bandit.engine.reference import seed_task
from bandit.engine.runs import parameters_of, reference_path
from bandit.sweep.config import SweepConfig
from bandit.sweep.score import final_rows
from cokl import regularizers
from cokl.support.files import read_json, read_result
from cokl.support.options import from_json


def reference_masses(folder: Path) -> tuple[np.ndarray, float]:
    """A finished sweep's frozen references: their correctness on each seed's N test inputs, (seeds * N,) float64 in
    (0, 1), and the share of actions that are correct.
    """
    config = from_json(SweepConfig, read_json(folder / "config.json", dict))
    masses = []
    for seed in range(config.seeds):
        parameters = parameters_of(read_result(reference_path(folder, seed)))
        masses.append(seed_task(config, seed, parameters).test.reference(slice(None)).mass.double().ravel())
    return torch.cat(masses).numpy(), config.environment.correct_actions / config.environment.actions


def reached_and_optimal(table: pd.DataFrame, masses: np.ndarray, correct_fraction: float) -> pd.DataFrame:
    """How far the networks stay below the unrestricted optimum, a row per method and coefficient.

    masses: (N,), the reference's q on its test inputs, over which the optimum is averaged. Columns: method, beta,
    p_correct, p_correct_std (over seeds), optimum. Methods without a closed form have no rows.
    """
    final = final_rows(table)
    lines = []
    for (method, beta), runs in final[final["method"] != "none"].groupby(["method", "beta"], sort=False):
        optimum = regularizers.get(str(method)).optimal_mass(masses, float(str(beta)), correct_fraction)
        if optimum is not None:
            reached = {"p_correct": runs["p_correct"].mean(), "p_correct_std": runs["p_correct"].std()}
            lines.append({"method": method, "beta": beta, **reached, "optimum": float(np.mean(optimum))})
    return pd.DataFrame(lines, columns=["method", "beta", "p_correct", "p_correct_std", "optimum"])
