"""The controlled experiment: trade-offs at any training step and any matched correctness."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd

from bandit.engine.tables import coverage_column, coverage_label, method_label
from bandit.sweep.analysis import MARKED, MATCHED_CORRECTNESS, diverged_note
from bandit.sweep.figures import means
from cokl_cli.report.html import Section, legend, look, plot, slider, text
from cokl_cli.report.results import read


def section(folder: Path) -> Section:
    """The interactive trade-off of a finished sweep."""
    scored = read("sweep", folder)[2].scored
    table, note = scored.runs, diverged_note(scored.table)
    coverage = coverage_column(table)
    steps = [int(step) for step in sorted(table["step"].unique())]
    trained = [str(method) for method in table["method"].unique() if method != "reference"]
    shown = coverage_label(coverage)
    seeds = table["seed"].nunique()
    body = f"""
<p>A point is a coefficient β, its place the mean over {seeds} seeds, its bars 95% intervals. The large points
are those of the table: for each method the coefficient whose mean correctness at this step is closest to the match.
{text(note)}</p>
<div class="together">
{legend(trained, method_label)}
<div class="controls">
{slider("tradeoff-step", "Training step", 0, len(steps) - 1, 1, len(steps) - 1)}
{slider("tradeoff-target", "Matched correctness", 0.05, 0.995, 0.001, MATCHED_CORRECTNESS)}
</div>
<div class="pair">
{plot("tradeoff-coverage", f"Correctness against {shown.lower()}; higher is better.")}
{plot("tradeoff-kl", "Correctness against conditional KL, KL(ref+ || pi+); lower is better.")}
</div>
</div>
<h3>At the matched correctness</h3>
<div class="scroll" tabindex="0" role="region" aria-label="At the matched correctness">
<table id="tradeoff-matched"></table></div>
<p class="note">*: more than {MARKED:g} away from the match, so not to be compared.</p>
<details><summary>Every point as a table</summary>
<div class="scroll" tabindex="0" role="region" aria-label="Every point">
<table id="tradeoff-points"></table></div></details>
"""
    data = {
        "steps": steps,
        "coverage": shown,
        "settings": [
            _setting(str(method), float(str(beta)), rows, coverage)
            for (method, beta), rows in table[table["method"] != "reference"].groupby(["method", "beta"])
        ],
        "looks": {method: {"label": method_label(method), **look(method)} for method in trained},
        "order": trained,
        "marked": MARKED,
    }
    return Section("tradeoff", "Correctness against diversity", body, {"tradeoff": data})


def _setting(method: str, beta: float, rows: pd.DataFrame, coverage: str) -> dict[str, Any]:
    """Means over seeds of one coefficient, and half their 95% intervals, by step; 0 for a single seed."""
    columns = {
        "correctness": "p_correct",
        "coverage": coverage,
        "covered": f"{coverage}_correct",
        "kl": "conditional_kl",
    }
    by_step = means(rows).sort_values("step")
    setting: dict[str, Any] = {"method": method, "beta": beta, "step": by_step["step"].tolist()}
    for name, column in columns.items():
        setting[name] = _short(by_step[column])
        setting[f"{name}_half_width"] = _short(by_step[f"{column}_half_width"].replace(math.inf, 0.0))
    return setting


def _short(values: pd.Series) -> list[float | None]:
    """Six significant digits, which is more than any plot or table shows; None for what is no number."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
