"""The theory's figures show certified optima, and what the networks lack is measured against the right curve."""

from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from bandit.sweep.references import reached_and_optimal
from cokl import regularizers
from theory.numeric import off_policy_figure as off_policy_bias
from theory.numeric import optimum_curves as optimum_curves_module
from theory.numeric import optimum_figure as optima
from theory.numeric.off_policy import CURRENT, behavior_policy, bias, bias_table
from theory.numeric.optimum_curves import ACTIONS, CORRECT, METHODS, optimum_curves

MASSES = np.array([0.05, 0.1, 0.15])
BETAS = [0.01, 0.3]


@pytest.fixture(scope="module")
def panels():
    """The axes of a picture whose networks reached 0.02 less than the unrestricted optimum."""
    rows = [
        {"seed": seed, "method": method, "beta": beta, "step": 1000, "p_correct": _mean_optimum(method, beta) - 0.02}
        for seed in (0, 1)
        for method in METHODS
        for beta in BETAS
    ]
    fractions = {0.02: CORRECT / ACTIONS, 0.1: 0.06, 0.5: CORRECT / ACTIONS}
    return optima.draw(
        optimum_curves(fractions), reached_and_optimal(pd.DataFrame(rows), MASSES, 0.06), 0.1, fractions
    ).axes


def _mean_optimum(method: str, beta: float) -> float:
    masses = regularizers.get(method).optimal_mass(MASSES, beta, 0.06)
    assert masses is not None
    return float(masses.mean())


def test_departure_is_what_the_networks_lack(panels):
    lines = [line for line in panels[-1].lines if len(line.get_xdata()) == len(BETAS) and line.get_marker() != "None"]
    assert len(lines) == len(METHODS)
    for line in lines:
        np.testing.assert_allclose(line.get_ydata(), 0.02, atol=1e-12)


def test_certified_and_trained_points_lie_on_a_curve(panels):
    for panel in panels[:-1]:
        for marker in ("o", "x"):
            points = [line for line in panel.lines if line.get_marker() == marker and line.get_color() == "black"]
            assert points
            for line in points:
                assert np.isfinite(line.get_ydata()).all()
        rings = [line.get_ydata() for line in panel.lines if line.get_marker() == "o" and line.get_color() == "black"]
        crosses = [line.get_ydata() for line in panel.lines if line.get_marker() == "x"]
        np.testing.assert_allclose(rings, crosses, atol=1e-4)


@pytest.mark.parametrize("worst", [2e-8, np.nan])
def test_without_a_certificate_there_is_no_mass(worst, monkeypatch):
    solution = np.full(ACTIONS, 1 / ACTIONS)
    monkeypatch.setattr(optimum_curves_module, "maximise", lambda *_: SimpleNamespace(worst=worst, solution=solution))
    monkeypatch.setattr(optimum_curves_module, "train_tabular", lambda regularizer, reference, betas: reference)
    table = optimum_curves({0.1: CORRECT / ACTIONS})
    assert table.loc[table["kind"] == "certified", "mass"].isna().all()
    assert table.loc[table["kind"] != "certified", "mass"].notna().all()


def test_bias_curves_show_the_exact_bias():
    with mpl.rc_context():
        left, right = off_policy_bias.draw(bias_table()).axes
    old = behavior_policy(CURRENT, 0.7, CURRENT.sum(), seed=63)
    for epsilon, name in ((None, "no clipping"), (0.2, r"$\epsilon_{\mathrm{IS}} = 0.2$")):
        (line,) = [line for line in left.lines if line.get_label() == name]
        assert np.asarray(line.get_ydata())[3] == pytest.approx(bias(CURRENT, old, 8, epsilon))
        (line,) = [line for line in right.lines if line.get_label() == name]
        far = behavior_policy(CURRENT, 1.5, CURRENT.sum(), seed=63)
        assert np.asarray(line.get_ydata())[-1] == pytest.approx(bias(CURRENT, far, 8, epsilon))
