"""What the finite-group lab reports: means over seeds with 95% t-intervals, as tables, Markdown and a summary."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd

from bandit.engine.tables import method_label
from bandit.finite_group.claims import recovered
from bandit.finite_group.config import FiniteGroupConfig
from bandit.finite_group.plan import EXACT
from bandit.finite_group.score import (
    ESTIMATE,
    PAPER_PASSES,
    POOLED,
    diverged_note,
    final_table,
    metric_columns,
    slope_table,
    with_intervals,
)
from cokl.support.files import write_atomically, write_text
from cokl.support.statistics import markdown_table, with_spread
from cokl.support.verdicts import SPREAD, answered


def caching_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """What finite groups cost in conditional KL, and what caching them costs besides, by passes over the inputs.

    A row per method, coefficient, group size and evaluated step, at the first mu. finite: fresh groups minus the exact
    objective; cached: cached groups minus fresh ones; nats, means of differences paired by seed, with NAME_interval.
    Empty without cached groups.
    """
    first = metrics[metrics["optimizer_steps"] == metrics["optimizer_steps"].min()]
    kl = first.set_index(["seed", "method", "beta", "group_size", "step"])["conditional_kl"]
    of = {groups: kl[(first["groups"] == groups).to_numpy()] for groups in (EXACT, "fresh", "cached")}
    cached = of["cached"]
    if cached.empty:
        return pd.DataFrame()
    fresh = of["fresh"].reindex(cached.index).to_numpy()
    exact = of[EXACT].droplevel("group_size").reindex(cached.index.droplevel("group_size")).to_numpy()
    costs = first[first["groups"] == "cached"].assign(finite=fresh - exact, cached=cached.to_numpy() - fresh)
    return with_intervals(costs, ["method", "beta", "group_size", "step", "passes"], ["finite", "cached"])


def write(trained: tuple[pd.DataFrame, pd.DataFrame], config: FiniteGroupConfig, folder: Path) -> str:
    """Write the tables as CSV and the page that shows them, FOLDER/results.md; returns what the screen shows.

    trained: metrics and recovery, as `bandit.finite_group.run.finite_group` returns them.
    """
    metrics, recovery = trained
    tables = {"final": final_table(metrics), "caching": caching_table(metrics)}
    if len(recovery):
        tables |= {
            "recovery_by_group_size": slope_table(recovery, ESTIMATE),
            "recovery_by_step": slope_table(recovery, [*ESTIMATE, "step"]),
            "recovery": slope_table(recovery, POOLED),
        }
    for name, table in tables.items():
        write_atomically(folder / "tables" / f"{name}.csv", partial(table.to_csv, index=False))
    page = [f"# Finite groups\n\n{_legend(metrics)}"]
    for title, shown in _shown(metrics, tables).items():
        page.append(f"## {title}\n\n{markdown_table(shown)}")
    write_text("\n".join(page), folder / "results.md")
    return on_screen(metrics, recovery, folder)


def on_screen(metrics: pd.DataFrame, recovery: pd.DataFrame, folder: Path) -> str:
    """The recovery against its prediction, and the on-policy metrics with fresh groups, for a terminal."""
    final = final_table(metrics)
    final = final[final["groups"].isin([EXACT, "fresh"]) & (final["optimizer_steps"] == final["optimizer_steps"].min())]
    return answered(
        recovered(recovery),
        metrics["seed"].nunique(),
        [f"At step {metrics['step'].max()}, mu = {final['optimizer_steps'].min()}. {_legend(metrics)}"],
        _final_cells(final, metrics, digits=3).drop(columns=["mu", "zero_correct_rate"], errors="ignore"),
        folder / "figures" / "finite_group_metrics.png",
        folder / "results.md",
    )


_CACHING = f"Conditional KL by passes over the cached groups (the paper makes {PAPER_PASSES:.1f})"
_RECOVERY = "Recovery: measured against R_G's prediction, over all G, steps and clusters"


def _shown(metrics: pd.DataFrame, tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    final = tables["final"]
    differences = final[final["groups"] != EXACT]
    shown = {
        "At the last step": _final_cells(final, metrics),
        "Difference to the exact objective at the same mu": _final_cells(differences, metrics, "_minus_exact"),
    }
    if len(caching := tables["caching"]):
        shown[_CACHING] = _caching_cells(caching)
    if "recovery" in tables:
        shown[_RECOVERY] = slope_cells(tables["recovery"])
        shown["The same for each G"] = slope_cells(tables["recovery_by_group_size"])
    return shown


def _final_cells(final: pd.DataFrame, metrics: pd.DataFrame, suffix: str = "", digits: int = 4) -> pd.DataFrame:
    names = [name for name in metric_columns(metrics) if f"{name}{suffix}" in final.columns]
    columns = {name: _cells(final[f"{name}{suffix}"], final[f"{name}{suffix}_interval"], digits) for name in names}
    return pd.DataFrame({**_identity(final), **columns}, index=final.index)


def slope_cells(slopes: pd.DataFrame) -> pd.DataFrame:
    """A table of slopes as people read it."""
    columns = {name: _cells(slopes[name], slopes[f"{name}_interval"]) for name in ("slope", "slope_at_rollout")}
    means = {name: slopes[name].map("{:.4f}".format) for name in ("measured", "predicted")}
    within = {"within noise": slopes["within_noise"].map("{:.0%}".format)}
    return pd.DataFrame({**_identity(slopes), **columns, **means, **within}, index=slopes.index)


def _caching_cells(caching: pd.DataFrame) -> pd.DataFrame:
    columns = {
        "method": caching["method"].map(method_label),
        "beta": caching["beta"].map("{:g}".format),
        "G": caching["group_size"].map("{:g}".format),
        "step": caching["step"],
        "passes": caching["passes"].map("{:.1f}".format),
        "finite groups - exact": _cells(caching["finite"], caching["finite_interval"]),
        "cached - fresh groups": _cells(caching["cached"], caching["cached_interval"]),
    }
    return pd.DataFrame(columns, index=caching.index)


def _identity(table: pd.DataFrame) -> dict[str, pd.Series]:
    shown = {
        "method": table["method"].map(method_label),
        "beta": table["beta"].map("{:g}".format),
        "groups": table["groups"],
        "mu": table["optimizer_steps"],
    }
    return {**shown, "G": table["group_size"].map("{:g}".format)} if "group_size" in table else shown


def _cells(means: pd.Series, intervals: pd.Series, digits: int = 4) -> list[str]:
    return [with_spread(mean, interval, digits) for mean, interval in zip(means, intervals, strict=True)]


def _legend(metrics: pd.DataFrame) -> str:
    return f"Seeds: {metrics['seed'].nunique()}; steps: {metrics['step'].max()}. {SPREAD}" + (
        f" {note}." if (note := diverged_note(metrics)) else ""
    )
