"""Theory against practice: Z*(beta) of each regularizer, with certified optima, tabular policies and the bandit's MLPs.

Curves are the closed forms for several q. Rings: certified convex programs on random references. Crosses: tabular
softmax policies trained by gradient. Filled markers: the final correctness of the bandit's networks, mean over seeds.
The last panel is what shared parameters and finite training cost: the unrestricted optimum, averaged over the
reference's q on the test inputs, minus the networks' correctness.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bandit.engine.reference import parameter_count, seed_task
from bandit.engine.tables import method_label
from bandit.sweep.config import SweepConfig
from bandit.sweep.score import final_rows
from cokl import regularizers
from cokl.support.files import read_array
from figures.style import RC, TEXT_WIDTH, method_style, new_figure
from theory.provers.convex import Reference, maximise
from theory.tabular import tabular_reference, train_tabular

METHODS = ("entropy", "forward_kl", "reverse_kl", "jensen_shannon", "cokl")
COMPUTED_BETAS = np.array([0.03, 0.1, 0.3, 1.0, 3.0, 10.0])
ACTIONS, CORRECT = 20, 5


def draw(table: pd.DataFrame, masses: np.ndarray, correct_fraction: float) -> Figure:
    """`table` is a sweep table; masses (N,) the reference's correctness on its test inputs; correct_fraction the
    bandit's correct actions over all actions, where the entropy optimum's curve for the networks stands."""
    q_bandit = float(masses.mean())
    shades = {0.02: 0.4, q_bandit: 1.0, 0.5: 0.7}
    with mpl.rc_context(RC):
        figure, axes = new_figure(TEXT_WIDTH, 4.3, nrows=2, ncols=3, sharex=True)
        final = final_rows(table)
        for panel, method in zip(axes, METHODS, strict=False):
            fractions = {q: correct_fraction if q == q_bandit else CORRECT / ACTIONS for q in shades}
            _curves(panel, method, shades, fractions)
            runs = final[final["method"] == method]
            points = runs.groupby("beta")["p_correct"].agg(["mean", "std"])
            style = method_style(method)
            panel.errorbar(
                points.index,
                points["mean"],
                yerr=points["std"].fillna(0),
                fmt=style.marker,
                color=style.color,
                markeredgecolor="black",
                markeredgewidth=0.4,
                elinewidth=0.6,
                zorder=5,
            )
            panel.set_title(method_label(method))
            if method == "entropy":  # q does not enter, the share of correct actions does
                shares = rf"solid: $c = {correct_fraction:g}$" + "\n" + rf"dashed: $c = {CORRECT / ACTIONS:g}$"
                panel.text(0.04, 0.06, shares, transform=panel.transAxes, fontsize=7)
        _departure(axes[-1], final, masses, correct_fraction)
        for panel in axes:
            panel.set_xscale("log")
            panel.set_xticks([1e-3, 1e-2, 1e-1, 1, 10])
        for panel in axes[3:]:
            panel.set_xlabel(r"coefficient $\beta$")
        for panel in (axes[0], axes[3]):
            panel.set_ylabel(r"correctness $Z$")
        figure.legend(handles=_legend(q_bandit), loc="outside lower center", ncols=4)
    return figure


def _curves(axes: Axes, method: str, shades: dict[float, float], fractions: dict[float, float]) -> None:
    """Closed forms, certified optima and trained tabular policies, fainter for q that are not the bandit's."""
    regularizer, color = regularizers.get(method), method_style(method).color
    betas = np.logspace(-3.4, 1, 200)
    for index, (q, shade) in enumerate(shades.items()):
        dashes = ((1.2, 1.2), (None, None), (4, 1.5))[index]
        optimum = np.asarray(regularizer.optimal_mass(q, betas, fractions[q]))
        axes.plot(betas, optimum, color=color, alpha=shade, dashes=dashes)
        reference = tabular_reference(np.full(len(COMPUTED_BETAS), q), ACTIONS, CORRECT, seed=index)
        if method == "entropy" and fractions[q] != CORRECT / ACTIONS:
            continue  # this curve is for the bandit's action space
        certified = []
        for beta in COMPUTED_BETAS:
            certificate = maximise(method, Reference(reference.probs[0].numpy(), CORRECT), float(beta))
            mass = certificate.solution[0] if method == "cokl" else certificate.solution[:CORRECT].sum()
            certified.append(mass if certificate.worst <= 1e-8 else np.nan)
        axes.plot(
            COMPUTED_BETAS, certified, "o", color="black", markerfacecolor="none", markersize=5.5, markeredgewidth=0.7
        )
        trained = train_tabular(regularizer, reference, torch.from_numpy(COMPUTED_BETAS))
        axes.plot(COMPUTED_BETAS, trained.mass, "x", color="black", markersize=3.2, markeredgewidth=0.7)
    axes.set_ylim(-0.04, 1.07)


def _departure(axes: Axes, final: pd.DataFrame, masses: np.ndarray, correct_fraction: float) -> None:
    """How far the networks stay below the unrestricted optimum, per method and coefficient."""
    for method in METHODS:
        points = final[final["method"] == method].groupby("beta")["p_correct"].mean()
        optimum = [
            float(np.asarray(regularizers.get(method).optimal_mass(masses, beta, correct_fraction)).mean())
            for beta in points.index
        ]
        axes.plot(points.index, np.array(optimum) - points.to_numpy(), **method_style(method).line())
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_title(r"What the networks lack: $Z^\star - P_{\mathrm{corr}}$")


def _legend(q_bandit: float) -> list[Line2D]:
    grey: Any = {"color": "#444444"}
    return [
        Line2D([], [], dashes=(1.2, 1.2), label="closed form, $q = 0.02$", **grey),
        Line2D([], [], label=f"closed form, $q = {q_bandit:.2f}$ (the bandit's)", **grey),
        Line2D([], [], dashes=(4, 1.5), label="closed form, $q = 0.5$", **grey),
        Line2D([], [], linestyle="none", marker="o", markerfacecolor="none", markersize=5.5, label="certified", **grey),
        Line2D([], [], linestyle="none", marker="x", label="tabular softmax, trained", **grey),
        Line2D([], [], linestyle="none", marker="o", markeredgecolor="black", label="bandit's MLPs", **grey),
    ]


def reference_masses(folder: Path) -> tuple[np.ndarray, float]:
    """Correctness of a finished sweep's frozen references on their test inputs, and correct over all actions."""
    config = SweepConfig.from_dict(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    masses = []
    for seed in range(config.seeds):
        parameters = torch.from_numpy(read_array(folder / "reference" / f"seed-{seed}.npy", (parameter_count(config),)))
        masses.append(seed_task(config, seed, parameters).test.reference(slice(None)).mass.double().ravel())
    return torch.cat(masses).numpy(), config.environment.correct_actions / config.environment.actions
