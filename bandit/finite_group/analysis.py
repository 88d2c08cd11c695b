"""What the finite-group lab's table says: means over seeds with 95% t-intervals, and claims on trained policies.

What is measured was declared after earlier runs of the lab had been seen.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pandas as pd

from bandit.engine.divergence import diverged, divergence_note, without_diverged
from bandit.engine.tables import coverage_column, method_label
from bandit.finite_group.config import FiniteGroupConfig
from bandit.finite_group.train import ESTIMATE, EXACT
from bandit.lab import Analysis, Tables
from cokl.support.statistics import summarize, with_spread
from cokl.support.verdicts import SPREAD, Claim, Measurement, Unit, claim_from

PAPER_PASSES = 600 * 8 / 512
"""How often the paper's CoKL draws each of its 512 cached prompts: 8 a step for 600 steps (E.3); 9.4."""

_EXACT_OF = ["method", "beta", "optimizer_steps"]

TITLES = {
    "final": "At the last step",
    "caching": f"Conditional KL by passes over the cached groups (the paper makes {PAPER_PASSES:.1f})",
}


def analyse(tables: Tables, config: FiniteGroupConfig) -> Analysis:
    """What finite groups cost in correctness, the claims, and the on-policy metrics with fresh groups."""
    metrics = tables["finite_group"]
    final, seeds = final_table(metrics), metrics["seed"].nunique()
    first = final["optimizer_steps"].min()
    shown = final[final["groups"].isin([EXACT, "fresh"]) & (final["optimizer_steps"] == first)]
    note = f"{diverged_note(metrics)}." if diverged_note(metrics) else ""
    claims = of_policies(metrics)
    return Analysis(
        answer=cost(final),
        seeds=seeds,
        claims=claims,
        tables={"final": final, "caching": caching_table(metrics)},
        captions={name: f"{title}." for name, title in TITLES.items()},
        titles=TITLES,
        readable=readable,
        screen=readable(shown, 3).drop(columns=["mu", _COLUMNS["zero_correct_rate"]], errors="ignore"),
        notes=[
            f"At step {metrics['step'].max()}, optimizer steps on each batch: {first}. G is the size of the groups. "
            f"Seeds: {seeds}. {SPREAD} {note}".strip()
        ],
        picture="finite_group_metrics",
        diverged=diverged_note(metrics),
    )


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


def readable(table: pd.DataFrame, digits: int = 4) -> pd.DataFrame:
    """A table as people read it: names, and each mean with its interval."""
    shown: dict[str, Any] = {
        "method": table["method"].map(method_label),
        "beta": table["beta"].map("{:g}".format),
        "groups": table.get("groups"),
        "mu": table.get("optimizer_steps"),
        "G": table["group_size"].map("{:g}".format) if "group_size" in table else None,
        "step": table.get("step"),
        "passes": table["passes"].map("{:.1f}".format) if "passes" in table else None,
    }
    for name in [name for name in map(str, table) if f"{name}_interval" in table and "_minus_exact" not in name]:
        pairs = zip(table[name], table[f"{name}_interval"], strict=True)
        title = _COLUMNS.get(name, name).replace("coverage_at_", "coverage@")
        shown[title] = [with_spread(mean, interval, digits) for mean, interval in pairs]
    return pd.DataFrame({name: cells for name, cells in shown.items() if cells is not None}, index=table.index)


_COLUMNS = {
    "p_correct": "correctness",
    "conditional_kl": "conditional KL",
    "zero_correct_rate": "groups without a correct one",
    "finite": "finite groups - exact",
    "cached": "cached - fresh groups",
}


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


def cost(final: pd.DataFrame) -> str:
    """What the largest groups change in CoKL's correctness, on-policy, from the final table."""
    shown = final[(final["method"] == "cokl") & (final["groups"] == "fresh")]
    shown = shown[shown["optimizer_steps"] == shown["optimizer_steps"].min()].sort_values(["beta", "group_size"])
    if shown.empty:
        return "CoKL was not trained in groups"
    largest = shown.iloc[-1]
    minus, size = largest["p_correct_minus_exact"], f"groups of {largest['group_size']:g}"
    difference = with_spread(abs(minus), largest["p_correct_minus_exact_interval"], 3)
    side = "below" if minus < 0 else "above"
    return f"CoKL's correctness with {size} is {difference} {side} its exact objective's"


def of_policies(metrics: pd.DataFrame) -> list[Claim]:
    """What finite groups and caching do to CoKL at the largest coefficient; each claim where its runs are there.

    Differences are paired by seed, at the last step and the first mu unless stated otherwise. Caching and mu are judged
    at the group size nearest to the paper's 8, caching also at the evaluated step nearest to the paper's passes.
    """
    runs = without_diverged_runs(metrics)
    runs = runs[(runs["method"] == "cokl") & (runs["beta"] == runs["beta"].max()) & (runs["step"] > 0)]
    first, final = runs["optimizer_steps"].min(), runs["step"].max()
    fresh_ones = runs[runs["groups"] == "fresh"]
    sizes = sorted(fresh_ones.loc[fresh_ones["optimizer_steps"] == first, "group_size"].unique())
    if not sizes:
        return []
    eight = min(sizes, key=lambda size: abs(size - 8))
    passes = runs[runs["optimizer_steps"] == first].drop_duplicates("step").set_index("step")["passes"]
    near = (passes - PAPER_PASSES).abs().idxmin()

    def of(column: str, groups: str, size: float = math.inf, mu: int = first, step: Any = final) -> pd.Series:
        kept = (runs["groups"] == groups) & (runs["group_size"] == size) & (runs["optimizer_steps"] == mu)
        return runs[kept & (runs["step"] == step)].set_index("seed")[column]

    def caching_beyond_groups(step: Any) -> pd.Series:
        fresh, cached = (of("conditional_kl", groups, eight, step=step) for groups in ("fresh", "cached"))
        return (cached - fresh) - (fresh - of("conditional_kl", EXACT, step=step))

    def beside_exact(name: str, column: str, size: float, unit: Unit) -> list[Measurement]:
        beyond = of(column, "fresh", size) - of(column, EXACT)
        return [Measurement.of(f"G = {size:g}", f"{name} minus the exact objective's", beyond, unit)]

    corrected = [beside_exact("correctness", "p_correct", size, "probability") for size in sizes]
    claims = [
        claim_from(
            "more correct",
            "Policies trained with finite groups end more correct than with the exact objective",
            "beyond",
            "beyond the paper: Appendix B speaks of the expected update",
            corrected[0],
            corrected[1:],
        ),
        claim_from(
            "largest groups",
            "Even the largest groups end with more conditional KL than the exact objective",
            "beyond",
            "beyond the paper",
            beside_exact("conditional KL", "conditional_kl", sizes[-1], "nats"),
        ),
    ]
    costs = (
        ("less", -1, near, f"after {passes[near]:.1f} passes", "finite groups' cost minus caching's"),
        ("more", 1, final, "at the end of the run", "caching's cost minus finite groups'"),
    )
    for more, sign, step, when, what in costs:
        beyond = sign * caching_beyond_groups(step).dropna()
        if len(beyond):
            where = f"G = {eight:g}, {passes[step]:.1f} passes"
            claims.append(
                claim_from(
                    f"caching costs {more}",
                    f"Caching the reference groups costs {more} conditional KL than finite groups do, {when}",
                    "beyond",
                    "beyond the paper",
                    [Measurement.of(where, what, beyond, "nats")],
                )
            )
    parts: tuple[tuple[str, str, Unit, int], ...] = (
        ("correctness", "p_correct", "probability", -1),
        ("conditional KL", "conditional_kl", "nats", 1),
    )
    for mu in sorted(set(fresh_ones["optimizer_steps"]) - {first}):
        claims.append(
            claim_from(
                f"mu = {mu}",
                f"With mu = {mu} policies end less correct and with more conditional KL",
                "beyond",
                "beyond the paper",
                [
                    Measurement.of(
                        f"G = {eight:g}",
                        f"{name}, mu = {mu} minus {first}" if sign > 0 else f"{name}, mu = {first} minus {mu}",
                        sign * (of(column, "fresh", eight, mu) - of(column, "fresh", eight)),
                        unit,
                    )
                    for name, column, unit, sign in parts
                ],
            )
        )
    return claims
