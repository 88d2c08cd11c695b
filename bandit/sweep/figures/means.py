"""What both pictures of the controlled experiment and its section of the page show: means over seeds."""

from __future__ import annotations

import pandas as pd

from bandit.engine.tables import coverage_column, coverage_label
from figures.marks import Panel

KL = r"$D_{\mathrm{KL}}(\pi_{\mathrm{ref}}^{+}\,\Vert\,\pi_\theta^{+})$ [nats]"


def means(table: pd.DataFrame) -> pd.DataFrame:
    """A row per method, beta and step: each metric's mean, and its standard deviation as METRIC_std."""
    metrics = table.columns.drop(["seed", "method", "beta", "step"])
    groups = table.groupby(["method", "beta", "step"], sort=False)[list(metrics)]
    return groups.mean().join(groups.std().add_suffix("_std")).reset_index()


def panels(table: pd.DataFrame, **shared: object) -> dict[str, Panel]:
    """Coverage on the left and conditional KL on the right, by their columns."""
    coverage = coverage_column(table)
    return {
        column: Panel(y=label, **shared)  # type: ignore[arg-type]
        for column, label in ((coverage, coverage_label(coverage)), ("conditional_kl", KL))
    }
