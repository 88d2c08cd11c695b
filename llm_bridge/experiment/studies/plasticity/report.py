"""Coefficients, tables and verdicts from the rows of the runs. The primary measurements are in `config`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd

from cokl import methods
from cokl.support.statistics import markdown_table
from cokl.support.verdicts import Claim, Measurement, judged, no_verdict
from llm_bridge.experiment.studies.plasticity.config import GRID, MARGIN, RIVALS, START, PlasticityConfig
from llm_bridge.experiment.studies.report import choose, incomplete, over_seeds, selection_table
from llm_bridge.experiment.studies.study import RUNS, STEPS, read_rows

LABELS = {"grpo": "GRPO alone", "entropy": "entropy bonus", START: "no stage 1"}
EARLY = 10
"""Steps whose mean accuracy the table shows beside that of all steps."""


label = partial(methods.label, own=LABELS)
"""How tables call a method."""


def chosen(runs: pd.DataFrame) -> dict[str, float]:
    """Each method's coefficient by the rule of `config.MARGIN`. Raises InputError without all selection runs."""
    return choose(_selection_means(runs), GRID, MARGIN, preference=lambda method, beta: beta)


def per_seed(root: Path) -> pd.DataFrame:
    """A row per reported seed with all its runs and method, in percent: accuracy after stage 1, `distinct` of 64, and
    accuracy in stage 2 at its first step, over its first EARLY steps, over all and at its end.
    """
    runs, steps = read_rows(root, RUNS), read_rows(root, STEPS)
    runs = runs[(runs["role"] == "reported") & (runs["set"] == "training")]
    runs = runs[runs.groupby("seed")["seed"].transform("size") == 2 * len(GRID) + 1]
    if runs.empty:
        return pd.DataFrame(columns=["seed"])
    known, ends = (runs[runs["stage"] == stage].set_index(["seed", "method"]) for stage in (1, 2))
    training, along = (steps[steps["stage"] == stage] for stage in (1, 2))

    def mean(rows: pd.DataFrame, column: str) -> pd.Series:
        return rows[rows["seed"].isin(runs["seed"])].groupby(["seed", "method"])[column].mean()

    columns = {
        "beta": ends["beta"],
        "share": mean(training, "gradient_share"),
        "accuracy": 100 * known["accuracy"],
        "distinct": known["distinct"],
        "first": 100 * mean(along[along["step"] == 1], "accuracy"),
        "early": 100 * mean(along[along["step"] <= EARLY], "accuracy"),
        "mean": 100 * mean(along, "accuracy"),
        "end": 100 * ends["accepted"],
    }
    return pd.DataFrame(columns).reset_index()


COLUMNS = {
    "accuracy": "Accuracy after stage 1",
    "distinct": "Different correct answers of 64",
    "first": "Stage 2: step 1",
    "early": f"steps 1 to {EARLY}",
    "mean": "all steps",
    "end": "at the end",
}


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """The table over seeds, as text."""
    return over_seeds(rows, "Stage 1", {method: label(method) for method in [START, *GRID]}, COLUMNS)


def claims(root: Path) -> list[Claim]:
    """The two primary measurements; without a verdict while a reported seed is missing."""
    rows = per_seed(root)
    if rows.empty:
        return []
    mean = rows.pivot(index="seed", columns="method", values="mean")
    judgements = []
    for rival in RIVALS:
        what, lead = f"mean accuracy minus that of {label(rival)}", mean["cokl"] - mean[rival]
        claim = judged(
            f"After CoKL on the training prompts a model learns a stricter task better than after {label(rival)}",
            "beyond the paper: its title's plasticity",
            [Measurement.of("the tiny LLM, stage 2", what, lead)],
        )
        whole = len(mean) >= len(PlasticityConfig().reported_seeds)
        judgements.append(claim if whole else replace(claim, verdict=None))
    return judgements


def render(root: Path) -> str:
    """The page of what is there."""
    rows, runs, wanted = per_seed(root), read_rows(root, RUNS), len(PlasticityConfig().reported_seeds)
    seeds, accuracy = rows["seed"].nunique(), _selection_means(runs)
    parts = ["# Plasticity of the tiny LLM", *incomplete(seeds, wanted, "reported seeds")]
    title, best = "Selection, accuracy after stage 1", partial(chosen, runs)
    parts.append(selection_table(title, GRID, best, label, lambda method, beta: f"{accuracy[method, beta]:.1f}"))
    if not no_verdict(seeds):
        parts += [
            f"Mean over {seeds} seeds, in percent, with half the width of its 95% t-interval.",
            markdown_table(shown(rows)),
        ]
        for claim in claims(root):
            parts.append(f"**{claim.statement}: {claim.verdict or 'no verdict yet'}.** {claim.measured}.")
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _selection_means(runs: pd.DataFrame) -> pd.Series:
    """Accuracy after stage 1 over the selection seeds, in percent, by method and coefficient; empty without rows."""
    rows = runs[(runs["role"] == "selection") & (runs["stage"] == 1) & (runs["set"] == "training")]
    return 100 * rows.groupby(["method", "beta"])["accuracy"].mean() if len(rows) else pd.Series(dtype=float)
