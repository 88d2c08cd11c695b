"""What the reports of all studies share: labels apart, how a method is chosen, and how the tables are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pandas as pd

from cokl.support.errors import InputError
from cokl.support.statistics import markdown_table, spread_column, summarize

Grid = Mapping[str, Sequence[float]]
"""Methods and the coefficients that are searched."""


def choose(scores: pd.Series, grid: Grid, margin: float, preference: Callable[[str, float], float]) -> dict[str, float]:
    """Of each method's coefficients the preferred one among those whose score is at most `margin` below that of GRPO
    alone; the smallest if there is none.

    scores: means over the selection seeds, by method and coefficient. Raises InputError unless all are there.
    """
    lacking = [method for method, betas in grid.items() for beta in betas if (method, beta) not in scores.index]
    if lacking:
        names = ", ".join(dict.fromkeys(lacking))
        raise InputError(f"seeds: the selection seeds lack runs of {names}; train them first")
    best = {}
    for method, betas in grid.items():
        good = [beta for beta in betas if scores[method, beta] >= scores["grpo", 0.0] - margin]
        best[method] = max(good, key=partial(preference, method), default=min(betas))
    return best


def selection_table(
    title: str,
    grid: Grid,
    chosen: Callable[[], Mapping[str, float]],
    label: Callable[[str], str],
    cell: Callable[[str, float], str],
) -> str:
    """What `cell` says of each method's coefficients, with the chosen one in bold; a sentence while runs are missing
    that choose.
    """
    try:
        best = chosen()
    except InputError:
        return "The coefficients are not chosen yet: selection runs are missing."

    def marked(method: str, beta: float) -> str:
        mark = "**" * (beta == best[method])
        return f"{mark}{beta:g}: {cell(method, beta)}{mark}"

    lines = [
        {title: label(method), "by coefficient": ", ".join(marked(method, beta) for beta in betas)}
        for method, betas in grid.items()
    ]
    return markdown_table(pd.DataFrame(lines))


def incomplete(seeds: int, wanted: int, which: str) -> list[str]:
    """The paragraph of a report that lacks seeds; none of one that is whole. which: how the page calls the seeds."""
    said = f"**Not complete: {seeds} of {wanted} {which} are there, so there is no verdict.** "
    return [said + "The same command resumes from these rows."] if seeds < wanted else []


def over_seeds(rows: pd.DataFrame, first: str, labels: Mapping[str, str], columns: Mapping[str, str]) -> pd.DataFrame:
    """The table over seeds, as text: a line per method in the order of `labels`, under the title `first`.

    rows: one per seed and method, with `beta`, `share` of the squared gradient, and what `columns` gives titles.
    """
    means = summarize(rows, ["method"], ["beta", "share", *columns]).set_index("method").loc[list(labels)]
    shown = {
        first: list(labels.values()),
        "Coefficient": [f"{beta:g}" if beta else "" for beta in means["beta"]],
        "Gradient share": ["" if pd.isna(share) else f"{share:.2f}" for share in means["share"]],
    }
    return pd.DataFrame({**shown, **{title: spread_column(means, name) for name, title in columns.items()}})
