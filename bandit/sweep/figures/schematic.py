"""Figure 1: what a full-policy KL and what CoKL constrain, drawn on the exact optima of a small example.

The example has four correct and five incorrect responses and a reference with q = 0.35. The optima of Z - beta * D at
beta = 0.5 are Theorem 2's for the forward KL and Theorem 1's for CoKL, whose incorrect side is left open.
"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from cokl import regularizers
from figures.style import RC, TEXT_WIDTH, Picture, new_figure

_Q, _BETA = 0.35, 0.5
_CORRECT = np.array([0.46, 0.27, 0.17, 0.10])
_INCORRECT = np.array([0.30, 0.25, 0.20, 0.15, 0.10])
_CORRECT_COLOR, _INCORRECT_COLOR = "#4d4d4d", "#bdbdbd"  # greys, since colours belong to methods
_PARTS = ("correctness mass $Z$", r"within correct, $\pi^{+}$", r"within incorrect, $\pi^{-}$")


def draw() -> Picture:
    """Three panels: the reference, the optimum under a full-policy KL, and the optimum under CoKL."""
    full_mass = float(np.asarray(regularizers.get("forward_kl").optimal_mass(_Q, _BETA)))
    cokl_mass = float(np.asarray(regularizers.get("cokl").optimal_mass(_Q, _BETA)))
    with mpl.rc_context({**RC, "axes.grid": False}):
        figure, panels = new_figure(TEXT_WIDTH, 2.5, ncols=3, sharey=True)
        _panel(panels[0], "Reference policy", _Q, None)
        _panel(panels[1], rf"Optimum under full forward KL, $\beta={_BETA:g}$", full_mass, (True, True, True))
        _panel(panels[2], r"Optimum under CoKL, any $\beta$", cokl_mass, (False, True, False))
        panels[0].set_ylabel("Probability")
        panels[0].set_ylim(0, 0.66)
        figure.caption = (
            f"What each KL constrains, on the optima of an example with q = {_Q:g}: the full forward KL at β = "
            f"{_BETA:g} holds correctness at {full_mass:.3f} and both conditionals at the reference's; CoKL holds the "
            f"correct conditional alone and lets correctness go to {cokl_mass:g}, whatever β."
        )
    return figure


def _panel(axes: Axes, title: str, mass: float, anchored: tuple[bool, bool, bool] | None) -> None:
    positions = np.concatenate([np.arange(4), 4.8 + np.arange(5)])
    colors = [_CORRECT_COLOR] * 4 + [_INCORRECT_COLOR] * 5
    heights = np.concatenate([mass * _CORRECT, (1 - mass) * _INCORRECT])
    axes.bar(positions, heights, 0.8, color=colors)
    if anchored is not None:
        reference = np.concatenate([_Q * _CORRECT, (1 - _Q) * _INCORRECT])
        outline = axes.bar(positions, reference, 0.8, fill=False, edgecolor="black", linewidth=0.9, label="reference")
        for bar in outline:
            bar.set_linestyle((0, (2, 1.5)))
        axes.legend(loc="upper right", bbox_to_anchor=(1, 0.76))
        for row, (part, held) in enumerate(zip(_PARTS, anchored, strict=True)):
            color = "black" if held else "#777777"
            axes.text(
                8.8 + 0.4,
                0.62 - 0.055 * row,
                f"{part}: " + ("anchored" if held else "free"),
                ha="right",
                color=color,
                fontweight="bold" if held else "normal",
                fontsize=7,
            )
    axes.set_title(title)
    axes.set_xticks([1.5, 6.8], [f"correct\n$Z = {mass:.2f}$", f"incorrect\n$1 - Z = {1 - mass:.2f}$"])
    axes.tick_params(axis="x", length=0)
