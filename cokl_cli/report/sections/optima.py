"""Z*(beta): every population optimum that has a closed form, for any q, beside the networks' final correctness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from latex2mathml.converter import convert

from bandit.config import EnvironmentConfig
from bandit.engine.tables import method_label
from bandit.sweep.analysis import final_rows
from cokl import regularizers
from cokl_cli.results import read
from figures.page import Section, legend, look, plot
from figures.style import method_style

REFERENCE_CORRECTNESS = np.round(np.concatenate([[0.001, 0.002, 0.005], np.arange(0.01, 1.0, 0.01)]), 3)
COEFFICIENTS = np.logspace(-3, 2, 126)
_OPTIMUM = (
    r"Z^{\star}(q, \beta) = Z_{\pi^{\star}},",
    r"\pi^{\star} = \mathrm{argmax}_{\pi} \; Z_\pi - \beta\, D(\pi)",
)


def section(sweeps: list[Path]) -> Section:
    """Curves on a grid of q and beta, from the regularizers' own closed forms; networks of the first sweep, if any."""
    fraction = _correct_fraction(sweeps)
    curves = {}
    for name in regularizers.names():
        optimum = regularizers.get(name).optimal_mass(REFERENCE_CORRECTNESS[:, None], COEFFICIENTS[None], fraction)
        if optimum is not None:
            grid = np.broadcast_to(np.asarray(optimum), (len(REFERENCE_CORRECTNESS), len(COEFFICIENTS)))
            curves[name] = [[float(f"{value:.5g}") for value in row] for row in grid]
    networks, q = _networks(sweeps[0]) if sweeps else ({}, 0.1)
    nearest = int(np.abs(REFERENCE_CORRECTNESS - q).argmin())
    note = (
        f"Filled markers are the final correctness of the networks in {sweeps[0].name}, means over seeds; they show "
        f"where q is their reference's, {q:.3f}. "
        if networks
        else ""
    )
    body = f"""
<div class="formula">{"".join(convert(part, display="block") for part in _OPTIMUM)}</div>
<p>The correctness of the best of all policies, where D is the regularizer, from its closed form. A full-policy KL
pulls it back to q as β grows. Entropy's optimum does not depend on q but on the share of correct actions, here
{fraction:g}. {note}</p>
{legend(curves, method_label)}
<div class="controls">
<label>Reference's correctness q <output id="optima-q-value"></output>
<input type="range" id="optima-q" min="0" max="{len(REFERENCE_CORRECTNESS) - 1}" step="1" value="{nearest}"></label>
<label>Coefficient β <output id="optima-beta-value"></output>
<input type="range" id="optima-beta" min="0" max="{len(COEFFICIENTS) - 1}" step="1" value="50"></label>
</div>
{plot("optima-curves", "Population optimum Z* against the coefficient; the vertical line is the chosen coefficient.")}
<div class="scroll" tabindex="0"><table id="optima-table"></table></div>
"""
    data: dict[str, Any] = {
        "q": REFERENCE_CORRECTNESS.tolist(),
        "beta": [float(f"{beta:.4g}") for beta in COEFFICIENTS],
        "curves": curves,
        "networks": networks,
        "networks_q": nearest,
        "looks": {name: {"label": method_label(name), **look(method_style(name))} for name in curves},
    }
    return Section("optima", "Population optima Z*(β)", body, data={"optima": data})


def _correct_fraction(sweeps: list[Path]) -> float:
    """Correct actions over all actions of the first sweep, or of the default environment."""
    environment = EnvironmentConfig()
    actions, correct = environment.actions, environment.correct_actions
    if sweeps:
        stored = json.loads((sweeps[0] / "config.json").read_text(encoding="utf-8"))["environment"]
        actions, correct = stored["actions"], stored["correct_actions"]
    return float(correct / actions)


def _networks(folder: Path) -> tuple[dict[str, Any], float]:
    """Mean final correctness of a sweep's networks by method and coefficient, and that of their references."""
    table = read("sweep", folder)[0]["sweep"]  # whose diverged runs `final_rows` leaves out
    final = final_rows(table)
    networks: dict[str, Any] = {}
    for method, runs in final.groupby("method", sort=False):
        means = runs.groupby("beta")["p_correct"].mean()
        networks[str(method)] = {"beta": means.index.tolist(), "correctness": means.tolist()}
    return networks, float(table[table["method"] == "reference"]["p_correct"].mean())
