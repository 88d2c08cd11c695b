"""What the finite-group lab's tables say: means over seeds with 95% t-intervals, slopes of the recovery, and claims.

What is measured beside the recovery was declared after earlier runs of the lab had been seen.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from bandit.engine.divergence import diverged, divergence_note, without_diverged
from bandit.engine.tables import coverage_column, method_label
from bandit.finite_group.config import FiniteGroupConfig
from bandit.finite_group.train import ESTIMATE, EXACT
from bandit.lab import Analysis, Tables
from cokl.support.statistics import mean_and_half_width, summarize, with_spread
from cokl.support.verdicts import SPREAD, Claim, Measurement, Unit, Verdict, judged, withheld

POOLED = ["method", "beta", "groups", "optimizer_steps"]
"""What tells the runs of a seed apart, without the group size."""
PAPER_PASSES = 600 * 8 / 512
"""How often the paper's CoKL draws each of its 512 cached prompts: 8 a step for 600 steps (E.3); 9.4."""

_EXACT_OF = ["method", "beta", "optimizer_steps"]

TOLERANCE = 0.05
"""How far from 1 a slope may be and still be the prediction's."""

CAPTIONS = {
    "final": "At the last step.",
    "minus_exact": "Difference to the exact objective at the same mu, at the last step.",
    "caching": f"Conditional KL by passes over the cached groups (the paper makes {PAPER_PASSES:.1f}).",
    "recovery": "Recovery: measured against R_G's prediction, over all G, steps and clusters.",
    "recovery_by_group_size": "The same for each G.",
}


def analyse(tables: Tables, config: FiniteGroupConfig) -> Analysis:
    """The recovery against its prediction, the claims, and the on-policy metrics with fresh groups."""
    metrics, recovery = tables["finite_group"], tables["recovery"]
    final = final_table(metrics)
    made = {"final": final, "minus_exact": _minus_exact(final), "caching": caching_table(metrics)}
    if len(recovery):
        made |= {
            "recovery": slope_table(recovery, POOLED),
            "recovery_by_group_size": slope_table(recovery, ESTIMATE),
            "recovery_by_step": slope_table(recovery, [*ESTIMATE, "step"]),
        }
    seeds = metrics["seed"].nunique()
    first = final["optimizer_steps"].min()
    shown = final[final["groups"].isin([EXACT, "fresh"]) & (final["optimizer_steps"] == first)]
    note = f"{diverged_note(metrics)}." if diverged_note(metrics) else ""
    return Analysis(
        answer=recovered(recovery),
        seeds=seeds,
        claims=[*withheld(of_recovery(recovery), seeds), *of_slopes(recovery), *of_policies(metrics)],
        tables=made,
        captions={name: caption for name, caption in CAPTIONS.items() if name in made},
        readable=readable,
        screen=readable(shown, 3).drop(columns=["mu", "zero_correct_rate"], errors="ignore"),
        notes=[f"At step {metrics['step'].max()}, mu = {first}. Seeds: {seeds}. {SPREAD} {note}".strip()],
        picture="finite_group_metrics",
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


def _minus_exact(final: pd.DataFrame) -> pd.DataFrame:
    """Of the final table's estimates in groups, the differences to the exact objective under the metrics' names."""
    differences = final[final["groups"] != EXACT]
    columns = {name: name.replace("_minus_exact", "") for name in map(str, final) if "_minus_exact" in name}
    return differences[[*ESTIMATE, *columns]].rename(columns=columns)


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
        shown[_TITLES.get(name, name)] = [with_spread(mean, interval, digits) for mean, interval in pairs]
    if "within_noise" in table:
        shown |= {name: table[name].map("{:.4f}".format) for name in ("measured", "predicted")}
        shown["within noise"] = table["within_noise"].map("{:.0%}".format)
    return pd.DataFrame({name: cells for name, cells in shown.items() if cells is not None}, index=table.index)


_TITLES = {"finite": "finite groups - exact", "cached": "cached - fresh groups"}


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


def of_recovery(recovery: pd.DataFrame) -> list[Claim]:
    """On CoKL's fresh, filtered groups at the first mu, where the paper proves it; empty if none were measured.

    Held if the slope's 95% interval lies within the tolerance of 1, not held if it lies outside, else undecided.
    """
    claims = []
    for row in _slopes(recovery):
        slope = with_spread(row["slope"], row["slope_interval"], 4)
        distance, half_width = abs(row["slope"] - 1), row["slope_interval"]
        verdict: Verdict = "undecided"
        if distance + half_width <= TOLERANCE:
            verdict = "held"
        elif distance - half_width > TOLERANCE:
            verdict = "not held"
        claims.append(
            Claim(
                "Finite groups add the one-sided recovery -(1 - Z)^G grad log Z to CoKL's expected gradient",
                "Appendix B, below Eq. 12",
                f"slope of the measured on the predicted pressure at beta {row['beta']:g} {slope}, over all G, steps "
                f"and clusters; {row['within_noise']:.1%} of {row['rows']} measurements within their noise",
                verdict,
            )
        )
    return claims


def recovered(recovery: pd.DataFrame) -> str:
    """The recovery that finite groups add, beside Appendix B's."""
    for row in _slopes(recovery):
        slope = with_spread(row["slope"], row["slope_interval"], 3)
        return f"The recovery of finite groups is {slope} times the one that Appendix B predicts, R_G"
    return "The recovery of finite groups was not measured"


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
        judged(
            "Policies trained with finite groups end more correct than with the exact objective",
            "beyond the paper: Appendix B speaks of the expected update",
            corrected[0],
            corrected[1:],
        ),
        judged(
            "Even the largest groups end with more conditional KL than the exact objective",
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
                judged(
                    f"Caching the reference groups costs {more} conditional KL than finite groups do, {when}",
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
            judged(
                f"With mu = {mu} policies end less correct and with more conditional KL",
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


def of_slopes(recovery: pd.DataFrame) -> list[Claim]:
    """Where the recovery is the prediction's and where not: without the filter, and off-policy."""
    if recovery.empty:
        return []
    cokl, first = recovery[recovery["method"] == "cokl"], recovery["optimizer_steps"].min()
    cokl = cokl[cokl["beta"] == cokl["beta"].max()]
    claims = []
    unfiltered = cokl[(cokl["groups"] == "unfiltered") & (cokl["optimizer_steps"] == first)]
    if len(unfiltered):
        missing = 1 - slopes_of_seeds(unfiltered, "predicted")
        claims.append(
            judged(
                "Without the filter of the reference groups the recovery is smaller than predicted",
                "Appendix B, which requires the filter",
                [Measurement.of("unfiltered groups", "1 minus the slope", missing, "times the prediction")],
            )
        )
    fresh = cokl[cokl["groups"] == "fresh"]
    for mu, rows in fresh[fresh["optimizer_steps"] > first].groupby("optimizer_steps"):
        beyond, gated = (slopes_of_seeds(rows, name) - 1 for name in ("predicted", "predicted_at_rollout"))
        asked: dict[str, Any] = {"unit": "times the prediction", "margin": TOLERANCE, "equal": True}
        claims.append(
            judged(
                f"The recovery is the predicted one off-policy, too, with mu = {mu}",
                "beyond the paper: Appendix B says that it does not hold exactly off-policy",
                [Measurement.of("the policy's own gate", "slope minus 1", beyond, **asked)],
                [[Measurement.of("the gate of the policy that drew the rollouts", "slope minus 1", gated, **asked)]],
            )
        )
    return claims


def _slopes(recovery: pd.DataFrame) -> list[dict[Hashable, Any]]:
    """Of CoKL's fresh groups at the first mu, a row per coefficient."""
    if recovery.empty:
        return []
    slopes = slope_table(recovery, POOLED)
    slopes = slopes[(slopes["method"] == "cokl") & (slopes["groups"] == "fresh")]
    return slopes[slopes["optimizer_steps"] == slopes["optimizer_steps"].min()].to_dict("records")
