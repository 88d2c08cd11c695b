"""What the finite-group lab's tables say: means over seeds with 95% t-intervals, and slopes of the recovery."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from bandit.engine.divergence import diverged, divergence_note, without_diverged
from bandit.engine.tables import coverage_column
from bandit.finite_group.plan import EXACT
from cokl.support.errors import InputError
from cokl.support.files import read_result
from cokl.support.statistics import mean_and_half_width, summarize

ESTIMATE = ["method", "beta", "groups", "optimizer_steps", "group_size"]
"""The columns that tell the runs of a seed apart."""

POOLED = ["method", "beta", "groups", "optimizer_steps"]
"""The same without the group size."""

PAPER_PASSES = 600 * 8 / 512
"""How often the paper's CoKL draws each of its 512 cached prompts: 8 a step for 600 steps (E.3); 9.4."""

_EXACT_OF = ["method", "beta", "optimizer_steps"]


def read_results(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The metrics and the recovery of a finished lab. Raises InputError if there is none."""
    paths = folder / "finite_group.parquet", folder / "recovery.parquet"
    for path in paths:
        if not path.is_file():
            raise InputError(
                f"no finished finite-group lab in {folder}: {path.name} is not there; "
                "`cokl bandit finite-group` makes them"
            )
    return read_result(paths[0]), read_result(paths[1])


def metric_columns(metrics: pd.DataFrame) -> list[str]:
    """What is measured at the last step."""
    names = ["p_correct", coverage_column(metrics), "conditional_kl", "zero_correct_rate"]
    return [name for name in names if name in metrics]  # exact objectives alone have no groups


def without_diverged_runs(metrics: pd.DataFrame) -> pd.DataFrame:
    """The metrics without the runs of which some seed diverged, and without what is compared with such an exact run.

    Raises InputError if none is left.
    """
    marks = diverged(metrics, "p_correct")
    lost = pd.MultiIndex.from_frame(marks.loc[marks["groups"] == EXACT, _EXACT_OF])
    kept = without_diverged(metrics, "p_correct", ESTIMATE)
    return kept[~pd.MultiIndex.from_frame(kept[_EXACT_OF]).isin(lost)] if len(lost) else kept


diverged_note = partial(divergence_note, metric="p_correct", run=ESTIMATE)
"""What is to be said of diverged runs wherever the metrics are summarised; "" if there are none."""


def final_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """A row per estimate at the last step. For each metric M: M and M_interval, the mean over seeds and half of its
    interval; M_minus_exact and its interval, the same of the paired difference to the exact objective at the same mu.
    """
    metrics = without_diverged_runs(metrics)
    final = metrics[metrics["step"] == metrics["step"].max()]
    seeds = pd.MultiIndex.from_frame(final[["seed", *_EXACT_OF]])
    exact = final[final["groups"] == EXACT].set_index(["seed", *_EXACT_OF]).loc[seeds]
    columns = []
    for name in metric_columns(metrics):
        columns.append(name)
        if name != "zero_correct_rate":  # infinite groups have none
            columns.append(f"{name}_minus_exact")
            final = final.assign(**{columns[-1]: final[name].to_numpy() - exact[name].to_numpy()})
    return with_intervals(final, ESTIMATE, columns)


def with_intervals(rows: pd.DataFrame, by: list[str], columns: list[str]) -> pd.DataFrame:
    """A row per group: each column's mean over seeds, and COLUMN_interval, half the width of its 95% t-interval."""
    return summarize(rows, by, columns).rename(columns=lambda name: name.replace("_half_width", "_interval"))


def slope_table(recovery: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """A row per group of `by`, of the recovery measured on clusters and steps against R_G's prediction.

    slope, slope_at_rollout: regression through the origin on `predicted` and on `predicted_at_rollout`, one per seed,
    as mean and half-interval over seeds. measured, predicted: means over all rows, nats. within_noise: share of rows
    whose prediction lies within 1.96 standard errors of what was measured, 0.95 where all that differs is noise.
    """
    lines = []
    for estimate, rows in recovery.groupby(by, sort=False):
        line = dict(zip(by, estimate, strict=True))
        for slope, prediction in (("slope", "predicted"), ("slope_at_rollout", "predicted_at_rollout")):
            line[slope], line[f"{slope}_interval"] = mean_and_half_width(slopes_of_seeds(rows, prediction))
        line["measured"], line["predicted"] = rows["measured"].mean(), rows["predicted"].mean()
        deviations = (rows["measured"] - rows["predicted"]).abs()
        line["within_noise"] = (deviations <= 1.96 * rows["standard_error"]).mean()
        line["rows"] = len(rows)
        lines.append(line)
    return pd.DataFrame(lines)


def slopes_of_seeds(recovery: pd.DataFrame, prediction: str) -> pd.Series:
    """Regression of `measured` on the column `prediction` through the origin, one number per seed."""
    return pd.Series([_slope(one[prediction], one["measured"]) for _, one in recovery.groupby("seed")])


def _slope(predicted: pd.Series, measured: pd.Series) -> float:
    return float((predicted * measured).sum() / (predicted**2).sum()) if (predicted != 0).any() else np.nan
