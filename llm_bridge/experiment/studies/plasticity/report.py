"""Coefficients, tables and verdicts from the rows of the runs. The primary measurements are in `config`."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pandas as pd

from cokl import methods
from cokl.support.errors import InputError
from cokl.support.statistics import markdown_table, mean_and_half_width, with_spread
from cokl.support.verdicts import Claim, Measurement, judged, no_verdict
from llm_bridge.experiment.studies.plasticity.config import GRID, MARGIN, RIVALS, START, PlasticityConfig
from llm_bridge.experiment.studies.study import RUNS, STEPS, read_rows

LABELS = {"grpo": "GRPO alone", "entropy": "entropy bonus", START: "no stage 1"}
EARLY = 10
"""Steps whose mean accuracy the table shows beside that of all steps."""


def label(method: str) -> str:
    """How tables call a method."""
    return LABELS.get(method) or methods.label(method)


def chosen(runs: pd.DataFrame) -> dict[str, float]:
    """Each method's coefficient by the rule of `config.MARGIN`. Raises InputError without all selection runs."""
    rows = runs[(runs["role"] == "selection") & (runs["stage"] == 1) & (runs["set"] == "training")]
    accuracy = 100 * rows.groupby(["method", "beta"])["accuracy"].mean() if len(rows) else pd.Series(dtype=float)
    lacking = [method for method, grid in GRID.items() for beta in grid if (method, beta) not in accuracy.index]
    if lacking:
        raise InputError(
            f"seeds: the selection seeds lack runs of {', '.join(dict.fromkeys(lacking))}; train them first"
        )
    least = accuracy["grpo", 0.0] - MARGIN
    return {
        method: max([beta for beta in grid if accuracy[method, beta] >= least], default=min(grid))
        for method, grid in GRID.items()
    }


def whole_seeds(runs: pd.DataFrame) -> list[int]:
    """The reported seeds with all their runs."""
    rows = runs[(runs["role"] == "reported") & (runs["set"] == "training")]
    expected = 2 * len(GRID) + 1
    counts = rows["seed"].value_counts()
    return sorted(counts[counts == expected].index.tolist())


def per_seed(root: Path) -> pd.DataFrame:
    """A row per whole reported seed and method, in percent: accuracy after stage 1, `distinct` of 64, and accuracy in
    stage 2 at its first step, over its first EARLY steps, over all and at its end.
    """
    runs, steps = read_rows(root, RUNS), read_rows(root, STEPS)
    runs = runs[runs["set"] == "training"]
    lines = []
    for seed, method in itertools.product(whole_seeds(runs), [START, *GRID]):
        ours = [table[(table["seed"] == seed) & (table["method"] == method)] for table in (runs, steps)]
        (known, ends), (training, along) = [[table[table["stage"] == stage] for stage in (1, 2)] for table in ours]
        lines.append(
            {
                "seed": seed,
                "method": method,
                "coefficient": ends["beta"].iloc[0],
                "share": training["gradient_share"].mean(),
                "accuracy": 100 * known["accuracy"].mean(),
                "distinct": known["distinct"].mean(),
                "first": 100 * along.nsmallest(1, "step")["accuracy"].mean(),
                "early": 100 * along.nsmallest(EARLY, "step")["accuracy"].mean(),
                "mean": 100 * along["accuracy"].mean(),
                "end": 100 * ends["accepted"].iloc[0],
            }
        )
    return pd.DataFrame(lines)


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
    lines = []
    for method in [START, *GRID]:
        ours = rows[rows["method"] == method]
        spreads = {
            title: "" if ours[name].isna().all() else with_spread(*mean_and_half_width(ours[name]), 1)
            for name, title in COLUMNS.items()
        }
        share = "" if ours["share"].isna().all() else f"{ours['share'].mean():.2f}"
        coefficient = f"{ours['coefficient'].iloc[0]:g}" if method not in (START, "grpo") else ""
        lines.append({"Stage 1": label(method), "Coefficient": coefficient, "Gradient share": share, **spreads})
    return pd.DataFrame(lines)


def claims(root: Path) -> list[Claim]:
    """The two primary measurements; without a verdict while a reported seed is missing."""
    rows = per_seed(root)
    if rows.empty:
        return []
    mean = rows.pivot(index="seed", columns="method", values="mean")
    judgements = []
    for rival in RIVALS:
        lead = Measurement.of("the tiny LLM, stage 2", "mean accuracy minus that of " + label(rival),
                              mean["cokl"] - mean[rival])  # fmt: skip
        claim = judged(
            f"After CoKL on the training prompts a model learns a stricter task better than after {label(rival)}",
            "beyond the paper: its title's plasticity",
            [lead],
        )
        whole = len(mean) >= len(PlasticityConfig().reported_seeds)
        judgements.append(claim if whole else replace(claim, verdict=None))
    return judgements


def render(root: Path) -> str:
    """The page of what is there."""
    runs = read_rows(root, RUNS)
    seeds, wanted = whole_seeds(runs), PlasticityConfig().reported_seeds
    parts = ["# Plasticity of the tiny LLM"]
    missing = sorted(set(wanted) - set(seeds))
    if missing:
        parts.append(
            f"**Not complete: {len(seeds)} of {len(wanted)} reported seeds are there, so there is no verdict.** "
            f"Missing: {', '.join(map(str, missing))}. `cokl llm plasticity --out` this folder resumes from these rows."
        )
    parts += [_selection(runs)]
    if not no_verdict(len(seeds)):
        parts += [
            f"Mean over {len(seeds)} seeds, in percent, with half the width of its 95% t-interval.",
            markdown_table(shown(per_seed(root))),
        ]
    for claim in claims(root) if not no_verdict(len(seeds)) else ():
        parts.append(f"**{claim.statement}: {claim.verdict or 'no verdict yet'}.** {claim.measured}.")
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _selection(runs: pd.DataFrame) -> str:
    """Accuracy after stage 1 over the selection seeds, by coefficient, with the chosen one in bold."""
    try:
        best = chosen(runs)
    except InputError:
        return "The coefficients are not chosen yet: selection runs are missing."
    rows = runs[(runs["role"] == "selection") & (runs["set"] == "training")]
    accuracy = 100 * rows.groupby(["method", "beta"])["accuracy"].mean()
    cells = [
        {
            "Selection, accuracy after stage 1": label(method),
            "by coefficient": ", ".join(
                f"{'**' * (beta == best[method])}{beta:g}: {accuracy[method, beta]:.1f}{'**' * (beta == best[method])}"
                for beta in grid
            ),
        }
        for method, grid in GRID.items()
    ]
    return markdown_table(pd.DataFrame(cells))
