"""Scores of a lab on two tasks (Appendix E.5) and the coefficients that it compares at, as loops over rows of a table.

A row is a dict: seed, mode, method, beta, kl_prompts, step, role, and metrics. A run is what mode, method, coefficient
and KL prompts name; rows come sorted by seed, and what is made of them keeps the order in which things first appear.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]

RUN = ("mode", "method", "beta", "kl_prompts")
TARGET = 90.0
T_975 = {
    1: 12.706204736174698,
    2: 4.302652729749464,
    3: 3.182446305283708,
    4: 2.7764451051977934,
    7: 2.3646242515927853,
}
"""Student's t at 97.5 %, by degrees of freedom."""


def select(rows: Iterable[Row], **values: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def grouped(rows: Iterable[Row], by: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows that agree in these columns, in order of appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    return groups


def mean(values: Sequence[float]) -> float:
    """Of at least one value."""
    return sum(values) / len(values)


def half_width(values: Sequence[float]) -> float:
    """Of the mean's 95% t-interval; infinite for one value."""
    if len(values) < 2:
        return math.inf
    variance = sum((value - mean(values)) ** 2 for value in values) / (len(values) - 1)
    return T_975[len(values) - 1] * math.sqrt(variance / len(values))


def written(values: Sequence[float], digits: int) -> str:
    """The mean and its half-width as pages show them: without the sign of a zero."""
    return f"{mean(values):z.{digits}f} ± {half_width(values):.{digits}f}"


def summary(rows: Iterable[Row], by: Sequence[str], columns: Sequence[str]) -> list[Row]:
    """A row per group: the mean of each column over its rows, and the interval's half-width."""
    lines = []
    for key, group in grouped(rows, by).items():
        line: Row = dict(zip(by, key, strict=True))
        for column in columns:
            values = [row[column] for row in group]
            line |= {column: mean(values), f"{column}_half_width": half_width(values)}
        lines.append(line)
    return lines


def final(rows: Sequence[Row]) -> list[Row]:
    """The rows of each run's last step on each seed."""
    last = {key: max(row["step"] for row in group) for key, group in grouped(rows, (*RUN, "seed")).items()}
    return [row for row in rows if row["step"] == last[*(row[name] for name in RUN), row["seed"]]]


def searched(rows: Sequence[Row]) -> list[Row]:
    """The rows of runs that the selection seeds are trained with, too."""
    runs = grouped(select(rows, role="selection"), RUN)
    return [row for row in rows if tuple(row[name] for name in RUN) in runs]


def scored(rows: Sequence[Row]) -> list[Row]:
    """With retention, adaptation and overall: ratios of means over the seeds of a role, linearised for each seed.

    A seed's anchors are its own last steps without a regularizer, and its base model.
    """
    anchors = {
        (row["mode"], row["seed"], row["method"]): row for row in final(rows) if row["method"] in ("base", "none")
    }
    made = [dict(row) for row in rows]
    for group in grouped(made, (*RUN, "role", "step")).values():
        for name, column, zero, hundred in (
            ("retention", "prior_correct", "none", "base"),
            ("adaptation", "new_correct", "base", "none"),
        ):
            zeros, hundreds = (
                [anchors[row["mode"], row["seed"], method][column] for row in group] for method in (zero, hundred)
            )
            scale = mean(hundreds) - mean(zeros)
            ratio = (mean([row[column] for row in group]) - mean(zeros)) / scale
            for row, bottom, top in zip(group, zeros, hundreds, strict=True):
                row[name] = 100 * (ratio + (row[column] - bottom - ratio * (top - bottom)) / scale)
        for row in group:
            row["overall"] = (row["retention"] + row["adaptation"]) / 2
    return told(made, "report")


def told(rows: Sequence[Row], role: str) -> list[Row]:
    """Without the scores of a role whose denominator's interval over its seeds holds zero: NaN, and so is overall."""
    made = [dict(row) for row in rows]
    for (_,), group in grouped(select(made, role=role), ("mode",)).items():
        ends = final(group)
        for name, column in (("retention", "prior_correct"), ("adaptation", "new_correct")):
            base, plain = ({row["seed"]: row[column] for row in select(ends, method=one)} for one in ("base", "none"))
            apart = [base[seed] - plain[seed] for seed in base]
            if -half_width(apart) <= mean(apart) <= half_width(apart):
                for row in group:
                    row[name] = row["overall"] = math.nan
    return made


def chosen(rows: Sequence[Row]) -> list[Row]:
    """Each mode's and method's coefficient with the best overall on the selection seeds alone; with edge."""
    means = summary(searched(final(select(rows, role="selection"))), RUN, ("overall",))
    choices = []
    for runs in grouped(means, ("mode", "method")).values():
        best = max(runs, key=lambda run: run["overall"])
        betas = [run["beta"] for run in runs]
        edge = min(betas) < max(betas) and best["beta"] in (min(betas), max(betas))
        choices.append({**{name: best[name] for name in RUN}, "edge": edge})
    return choices


def at_equal_adaptation(rows: Sequence[Row]) -> list[Row]:
    """The reported seeds' retention where their mean adaptation is 90, between two neighbouring coefficients.

    A seed is moved along the line through the means by what it lacks itself. Of several pairs of coefficients the one
    between which the selection seeds retain most.
    """
    lines = []
    names = ["adaptation", "retention"]
    for (mode, method), runs in grouped(searched(final(rows)), ("mode", "method")).items():
        betas = sorted({run["beta"] for run in runs})
        means = {
            (role, beta): {name: mean([row[name] for row in select(runs, role=role, beta=beta)]) for name in names}
            for role, beta in itertools.product(("report", "selection"), betas)
        }
        pairs = []
        for below, above in itertools.pairwise(betas):
            left, right = means["report", below], means["report", above]
            low, high = sorted((left["adaptation"], right["adaptation"]))
            if low <= TARGET <= high and low < high:
                share = (TARGET - left["adaptation"]) / (right["adaptation"] - left["adaptation"])
                ends = [means["selection", beta]["retention"] for beta in (below, above)]
                pairs.append((ends[0] + share * (ends[1] - ends[0]), below, above, share))
        if not pairs:
            continue
        _, below, above, share = max(pairs)
        left, right = means["report", below], means["report", above]
        for one, other in zip(
            select(runs, role="report", beta=below), select(runs, role="report", beta=above), strict=True
        ):
            mixed = {name: one[name] + share * (other[name] - one[name]) for name in names}
            lacks = TARGET - mixed["adaptation"]
            slope = (right["retention"] - left["retention"]) / (right["adaptation"] - left["adaptation"])
            retention = mixed["retention"] + slope * lacks
            lines.append({"mode": mode, "method": method, "seed": one["seed"], "retention": retention})
    return lines
