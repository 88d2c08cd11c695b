"""Coefficients, tables and verdicts from the rows of the runs. The primary measurement is in `config`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd

from cokl import methods
from cokl.support.statistics import markdown_table
from cokl.support.verdicts import Claim, Measurement, judged
from llm_bridge.experiment.config import BASE, MATH_SETS
from llm_bridge.experiment.studies.config import Role
from llm_bridge.experiment.studies.report import choose, incomplete, over_seeds, selection_table
from llm_bridge.experiment.studies.strength.config import (
    ABLATION,
    AGAIN,
    BASELINE,
    GRID,
    MARGIN,
    RIVAL,
    VARIANTS,
    StrengthConfig,
)
from llm_bridge.experiment.studies.study import RUNS, STEPS, read_rows

LABELS = {BASE: "Base", "grpo": "GRPO alone", BASELINE: "CoKL with a baseline"}
METHODS: dict[Role, tuple[str, ...]] = {"reported": (BASE, *GRID, *VARIANTS), "again": (BASE, *AGAIN)}
"""By role, in the order of the table."""
TITLES: dict[Role, str] = {"reported": "Reported seeds", "again": "Again, with new random draws throughout"}


label = partial(methods.label, own=LABELS)
"""How tables call a method."""


def scores(runs: pd.DataFrame) -> pd.DataFrame:
    """A row per seed and run. In percent: each set's accuracy, `math`, the mean of the math sets', and `chat_val`.
    `distinct`: different correct answers among 64 to a math prompt, the mean of the sets.
    """
    keys = ["seed", "role", "method", "beta"]
    table = 100 * runs.pivot_table(index=keys, columns="set", values="accuracy")
    distinct = runs[runs["set"].isin(MATH_SETS)].groupby(keys)["distinct"].mean()
    return table.assign(math=table[list(MATH_SETS)].mean(axis=1), distinct=distinct).reset_index()


def chosen(runs: pd.DataFrame) -> dict[str, float]:
    """Each method's coefficient by the rule of `config.MARGIN`. Raises InputError without all selection runs."""
    means = _selection_means(runs)
    return choose(means["chat_val"], GRID, MARGIN, preference=lambda method, beta: means["math"][method, beta])


def per_seed(root: Path, role: Role = "reported") -> pd.DataFrame:
    """The scores of the seeds of a role that have all their runs, with the mean `share` of the gradient's square."""
    runs, steps = read_rows(root, RUNS), read_rows(root, STEPS)
    runs = runs[runs["role"] == role]
    if runs.empty:
        return pd.DataFrame(columns=["seed"])
    table = scores(runs)
    whole = table.groupby("seed")["method"].nunique() == len(METHODS[role])
    table = table[table["seed"].isin(whole[whole].index)]
    share = steps.groupby(["seed", "method", "beta"])["gradient_share"].mean().rename("share").reset_index()
    return table.merge(share, how="left", on=["seed", "method", "beta"])


def shown(rows: pd.DataFrame, role: Role = "reported") -> pd.DataFrame:
    """The table over seeds, as text."""
    columns = {"math": "Math Avg", **{name: name for name in MATH_SETS}}
    columns |= {"distinct": "Different correct answers of 64", "chat_val": "Chat"}
    return over_seeds(rows, "Method", {method: label(method) for method in METHODS[role]}, columns)


def claims(root: Path) -> list[Claim]:
    """The primary measurement, in either report that is whole."""
    return [claim for role in METHODS for claim in _claims_of(per_seed(root, role), role)]


def _claims_of(rows: pd.DataFrame, role: Role) -> Iterator[Claim]:
    if rows["seed"].nunique() < len(StrengthConfig().seeds[role]):
        return
    kept = rows.pivot(index="seed", columns="method", values="math")
    name = f"the tiny LLM{', again' if role == 'again' else ''}"

    def lead(other: str, ours: str = "cokl") -> Measurement:
        difference = kept[ours] - kept[other]
        return Measurement.of(name, f"Math Avg of {label(ours)} minus {label(other)}", difference)

    others = (RIVAL, "grpo", "reverse_kl", "forward_kl") if role == "reported" else (RIVAL, "grpo")
    for other in others:
        yield judged(
            f"Each at its best coefficient, CoKL ends with a higher Math Avg than {label(other)}",
            "beyond the paper, which claims a higher Overall and has no search over CoKL's own coefficient",
            [lead(other)],
        )
    if role == "reported":
        lower = "Without term 1 CoKL ends with a lower Math Avg"
        yield judged(lower, "Ablation of the loss structure", [lead(ABLATION)])
    higher = "With a baseline in term 2 CoKL ends with a higher Math Avg"
    yield judged(higher, "beyond the paper", [lead("cokl", ours=BASELINE)])


def render(root: Path) -> str:
    """The page of what is there."""
    runs = read_rows(root, RUNS)
    means = _selection_means(runs)

    def cell(method: str, beta: float) -> str:
        return f"{means['math'][method, beta]:.1f} / {means['chat_val'][method, beta]:.1f}"

    parts = [
        "# The tiny LLM, each method at its best of four coefficients",
        f"The primary measurement is raw Math Avg, {label('cokl')} minus {label(RIVAL)}. It was declared before the "
        "study's first run. The other verdicts are not corrected for their number.",
        selection_table("Selection, Math Avg / chat score", GRID, partial(chosen, runs), label, cell),
    ]
    for role, title in TITLES.items():
        rows = per_seed(root, role)
        seeds, wanted = rows["seed"].nunique(), len(StrengthConfig().seeds[role])
        parts += [f"## {title}", *incomplete(seeds, wanted, "seeds")]
        if seeds:
            parts.append(
                f"Mean over {seeds} seeds, in percent apart from the answers, with half the width of "
                "its 95% t-interval."
            )
            parts.append(markdown_table(shown(rows, role)))
        parts += [
            f"**{claim.statement}: {claim.verdict or 'no verdict'}.** {claim.measured.removeprefix('primary: ')}."
            for claim in _claims_of(rows, role)
        ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _selection_means(runs: pd.DataFrame) -> pd.DataFrame:
    """`math` and `chat_val` over the selection seeds by method and coefficient; empty without rows."""
    rows = runs[runs["role"] == "selection"]
    names = ["math", "chat_val"]
    return scores(rows).groupby(["method", "beta"])[names].mean() if len(rows) else pd.DataFrame(columns=names)
