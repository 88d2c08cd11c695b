"""What a sweep's table says: final rows, and each method's coefficient at matched correctness.

Assumption beyond the paper: a method's matched coefficient is the one whose mean final correctness over seeds is
closest to 0.96; one coefficient per method, the same for all seeds.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd

from bandit.engine.divergence import divergence_note, without_diverged
from bandit.engine.tables import method_label
from cokl.support.errors import InputError
from cokl.support.files import read_result
from cokl.support.statistics import with_spread

MATCHED_CORRECTNESS = 0.96


def read_sweep(folder: Path) -> pd.DataFrame:
    """The table of a finished sweep. Raises InputError if there is none."""
    path = folder / "sweep.parquet"
    if not path.is_file():
        raise InputError(f"no finished sweep in {folder}: {path.name} is not there; `cokl bandit sweep` makes one")
    table = require_sweep(read_result(path), path)
    if not (table["method"] != "reference").any():
        raise InputError(f"{path} holds no trained run; `cokl bandit sweep` makes one that does")
    return table


def require_sweep(table: object, what: object = "table") -> pd.DataFrame:
    """The table, if it is a sweep's. Raises InputError, which calls it `what`, for one that lacks its columns."""
    if not isinstance(table, pd.DataFrame):
        raise InputError(f"{what}: expected the table that run_sweep returns, got {type(table).__name__}")
    missing = {"seed", "method", "beta", "step", "p_correct", "conditional_kl"} - set(table.columns)
    if missing or not any(str(name).startswith("coverage_at_") for name in table.columns):
        lacks = ", ".join(sorted(missing)) or "coverage_at_K"
        raise InputError(
            f"{what}: not a sweep table; missing columns: {lacks}; run_sweep and `cokl bandit sweep` make one"
        )
    return table


RUN = ("method", "beta")
"""What names a run, up to its seed."""


without_diverged_runs = partial(without_diverged, metric="p_correct", run=RUN)
"""The table without the coefficients of which some seed diverged. Raises InputError if none is left."""

diverged_note = partial(divergence_note, metric="p_correct", run=RUN)
"""What is to be said of diverged runs wherever the table is summarised; "" if there are none."""


def final_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of each run's last step; the reference and coefficients that diverged are left out."""
    table = without_diverged_runs(table)
    trained = table[table["method"] != "reference"]
    return trained[trained["step"] == trained["step"].max()]


def matched_coefficients(table: pd.DataFrame) -> dict[str, float]:
    """For each regularized method, the coefficient whose mean final correctness is closest to 0.96."""
    final = final_rows(table)
    final = final[final["method"] != "none"]
    correctness = final.groupby(["method", "beta"], sort=False)["p_correct"].mean()
    distance = (correctness - MATCHED_CORRECTNESS).abs().reset_index()
    best = distance.loc[distance.groupby("method", sort=False)["p_correct"].idxmin()]
    return dict(zip(best["method"], best["beta"], strict=True))


def matched_rows(table: pd.DataFrame) -> pd.DataFrame:
    """All evaluated steps of each method's matched coefficient."""
    table = without_diverged_runs(table)
    chosen = pd.DataFrame(matched_coefficients(table).items(), columns=["method", "beta"])
    return chosen.merge(table, on=["method", "beta"])


def matched_table(table: pd.DataFrame, digits: int = 4) -> pd.DataFrame:
    """A row per method at its matched coefficient (and without regularizer): final metrics as mean ± spread."""
    final = final_rows(table)
    rows = pd.concat([final[final["method"] == "none"], final_rows(matched_rows(table))])
    metrics = [name for name in table.columns if name not in ("seed", "method", "beta", "step")]
    lines = []
    for (method, beta), group in rows.groupby(["method", "beta"], sort=False):
        cells = {name: with_spread(group[name].mean(), group[name].std(), digits) for name in metrics}
        lines.append({"method": method_label(str(method)), "beta": f"{beta:g}", **cells})
    return pd.DataFrame(lines)
