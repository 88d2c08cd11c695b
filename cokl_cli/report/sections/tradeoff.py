"""The controlled experiment: trade-offs at any training step, and dynamics at any matched correctness."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd

from bandit.engine.tables import coverage_column, coverage_label, method_label
from bandit.sweep.analysis import MATCHED_CORRECTNESS, diverged_note, without_diverged_runs
from bandit.sweep.figures import means
from cokl_cli.results import read
from figures.page import Section, legend, look, plot, text
from figures.style import SEED_LINES, method_style


def section(folder: Path) -> Section:
    """The interactive trade-off of a finished sweep."""
    whole = read("sweep", folder)[0]["sweep"]
    table, note = without_diverged_runs(whole), diverged_note(whole)
    name, coverage = folder.name, coverage_column(table)
    steps = [int(step) for step in sorted(table["step"].unique())]
    methods = [str(method) for method in table["method"].unique()]
    shown = coverage_label(coverage)
    seeds = table["seed"].nunique()
    trained = [method for method in methods if method != "reference"]
    runs = len(table[table["method"].isin(trained)].groupby(["seed", "method", "beta"]))
    body = f"""
<p>{runs} runs, {seeds} seeds. A point is a coefficient β, its place the mean
over seeds, its bars one standard deviation. Hover for numbers; press a method, or click a point, to isolate it.
{text(note)}</p>
{legend(methods, method_label)}
<div class="controls">
<label>Training step <output id="{name}-step-value"></output>
<input type="range" id="{name}-step" min="0" max="{len(steps) - 1}" step="1" value="{len(steps) - 1}"></label>
<label>Matched correctness <output id="{name}-target-value"></output>
<input type="range" id="{name}-target" min="0.05" max="0.995" step="0.001" value="{MATCHED_CORRECTNESS}"></label>
<label>Show <select id="{name}-zoom"><option value="near">around the matched correctness</option>
<option value="all">every coefficient and the reference</option></select></label>
<button type="button" id="{name}-reset">Paper's: last step, {MATCHED_CORRECTNESS}</button>
</div>
<div class="pair">
{plot(f"{name}-coverage", f"Correctness against {shown.lower()}; drag the foot of the line of the match.")}
{plot(f"{name}-kl", "Correctness against conditional KL, KL(ref+ || pi+); lower is better.")}
</div>
<h3>At the matched correctness</h3>
<p id="{name}-matched-said" aria-live="polite"></p>
<div class="scroll" tabindex="0"><table id="{name}-matched"></table></div>
<div class="pair">
{plot(f"{name}-coverage-dynamics", f"{shown} during training at the coefficients of the table.")}
{plot(f"{name}-kl-dynamics", "Conditional KL during training at the coefficients of the table.")}
</div>
<details><summary>Every point as a table</summary>
<div class="scroll" tabindex="0"><table id="{name}-points"></table></div></details>
"""
    data = {
        "steps": steps,
        "seeds": seeds,
        "coverage": shown,
        "target": MATCHED_CORRECTNESS,
        "settings": [
            _setting(str(method), float(str(beta)), rows, coverage, seeds < SEED_LINES)
            for (method, beta), rows in table.groupby(["method", "beta"], sort=False)
        ],
        "looks": {method: {"label": method_label(method), **look(method_style(method))} for method in methods},
        "order": trained,
    }
    return Section("tradeoff", "Correctness against diversity", body, name, data={"sweeps": {name: data}})


def _setting(method: str, beta: float, rows: pd.DataFrame, coverage: str, each_seed: bool) -> dict[str, Any]:
    """Means and standard deviations over seeds of one coefficient, by step; each seed's values too if asked for."""
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
        setting[f"{name}_std"] = _short(by_step[f"{column}_std"].fillna(0.0))
    if each_seed:
        setting["each"] = [
            {name: _short(run.sort_values("step")[columns[name]]) for name in ("coverage", "kl")}
            for _, run in rows.groupby("seed")
        ]
    return setting


def _short(values: pd.Series) -> list[float | None]:
    """Six significant digits, which is more than any plot or table shows; None for what is no number."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
