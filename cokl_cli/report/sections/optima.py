"""Z*(beta): every population optimum that has a closed form, for any q."""

from __future__ import annotations

import numpy as np
from latex2mathml.converter import convert

from bandit.config import EnvironmentConfig
from bandit.engine.tables import method_label
from cokl import regularizers
from cokl_cli.report.html import Section, legend, look, plot, slider

REFERENCE_CORRECTNESS = np.round(np.concatenate([[0.001, 0.002, 0.005], np.arange(0.01, 1.0, 0.01)]), 3)
COEFFICIENTS = np.logspace(-3, 2, 126)
_OPTIMUM = (
    r"Z^{\star}(q, \beta) = Z_{\pi^{\star}},",
    r"\pi^{\star} = \mathrm{argmax}_{\pi} \; Z_\pi - \beta\, D(\pi)",
)


def section(environment: EnvironmentConfig) -> Section:
    """Curves on a grid of q and beta, from the regularizers' own closed forms; entropy's in this environment."""
    fraction = environment.correct_actions / environment.actions
    curves = {}
    for regularizer in map(regularizers.get, regularizers.names()):
        if regularizer.has_closed_form:
            grid = regularizer.optimal_mass(REFERENCE_CORRECTNESS[:, None], COEFFICIENTS[None], fraction)
            curves[regularizer.name] = [[float(f"{value:.5g}") for value in row] for row in grid]
    body = f"""
<div class="formula">{"".join(convert(part, display="block") for part in _OPTIMUM)}</div>
<p>The correctness of the best of all policies, where D is the regularizer, from its closed form. A full-policy KL
pulls it back to q as β grows. Entropy's optimum does not depend on q but on the share of correct actions, here
{fraction:g}.</p>
<div class="together">
{legend(curves, method_label)}
<div class="controls">
{slider("optima-q", "Reference's correctness q", 0, len(REFERENCE_CORRECTNESS) - 1, 1, 12)}
{slider("optima-beta", "Coefficient β", 0, len(COEFFICIENTS) - 1, 1, 50)}
</div>
{plot("optima-curves", "Population optimum Z* against the coefficient; the vertical line is the chosen coefficient.")}
</div>
<div class="scroll" tabindex="0" role="region" aria-label="Optima at q and β"><table id="optima-table"></table></div>
"""
    data = {
        "q": REFERENCE_CORRECTNESS.tolist(),
        "beta": [float(f"{beta:.4g}") for beta in COEFFICIENTS],
        "curves": curves,
        "looks": {name: {"label": method_label(name), **look(name)} for name in curves},
    }
    return Section("optima", "Population optima Z*(β)", body, {"optima": data})
