"""Theory against practice: Z*(beta) of each regularizer, with certified optima, tabular policies and the bandit's MLPs.

Curves are the closed forms for several q. Rings: certified convex programs on random references. Crosses: tabular
softmax policies trained by gradient. Filled markers: the final correctness of the bandit's networks, mean over seeds.
The last panel is what shared parameters and finite training cost: the unrestricted optimum, averaged over the
reference's q on the test inputs, minus the networks' correctness.
"""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from cokl.methods import label as method_label
from figures.style import RC, TEXT_WIDTH, Picture, method_style, new_figure, note_diverged

OTHER_MASSES = (0.02, 0.5)
"""The q that are drawn beside the bandit's."""
_DASHES = ((1.2, 1.2), (None, None), (4, 1.5))
_SHADES = (0.4, 1.0, 0.7)


def draw(
    curves: pd.DataFrame, networks: pd.DataFrame, q: float, correct_fractions: dict[float, float], note: str = ""
) -> Picture:
    """curves: `theory.numeric.optimum_curves`'s table. networks: `bandit.sweep.references.lacking`'s. q: the bandit's.

    correct_fractions: for each q of `curves`, in its order, the share of correct actions that entropy's curve is for.
    note: what is said below the panels.
    """
    methods = [str(method) for method in curves["method"].unique()]
    with mpl.rc_context(RC):
        figure, axes = new_figure(TEXT_WIDTH, 4.3, nrows=2, ncols=3, sharex=True)
        for panel, method in zip(axes, methods, strict=False):
            _curves(panel, method, curves[curves["method"] == method])
            points, style = networks[networks["method"] == method], method_style(method)
            panel.errorbar(
                points["beta"],
                points["p_correct"],
                yerr=points["p_correct_std"].fillna(0),
                fmt=style.marker,
                color=style.color,
                markeredgecolor="black",
                markeredgewidth=0.4,
                elinewidth=0.6,
                zorder=5,
            )
            panel.set_title(method_label(method))
            if method == "entropy":  # q does not enter, the share of correct actions does
                other = correct_fractions[OTHER_MASSES[-1]]
                shares = rf"solid: $c = {correct_fractions[q]:g}$" + "\n" + rf"dashed: $c = {other:g}$"
                panel.text(0.04, 0.06, shares, transform=panel.transAxes, fontsize=7)
        for name, points in networks[networks["method"].isin(methods)].groupby("method", sort=False):
            axes[-1].plot(points["beta"], points["optimum"] - points["p_correct"], **method_style(str(name)).line())
        axes[-1].axhline(0, color="black", linewidth=0.6)
        axes[-1].set_title(r"What the networks lack: $Z^\star - P_{\mathrm{corr}}$")
        for panel in axes:
            panel.set_xscale("log")
            panel.set_xticks([1e-3, 1e-2, 1e-1, 1, 10])
        for panel in axes[3:]:
            panel.set_xlabel(r"coefficient $\beta$")
        for panel in (axes[0], axes[3]):
            panel.set_ylabel(r"correctness $Z$")
        figure.legend(handles=_legend(q), loc="outside lower center", ncols=4)
        figure.caption = _caption(networks, q)
        note_diverged(figure, note)
    return figure


def _curves(axes: Axes, method: str, curves: pd.DataFrame) -> None:
    """Closed forms, certified optima and trained tabular policies, fainter for q that are not the bandit's."""
    for place, (_, rows) in enumerate(curves.groupby("q", sort=False)):
        of_kind = {kind: part for kind, part in rows.groupby("kind", sort=False)}
        closed = of_kind["closed form"]
        look: Any = {"color": method_style(method).color, "alpha": _SHADES[place], "dashes": _DASHES[place]}
        axes.plot(closed["beta"], closed["mass"], **look)
        ring: Any = {"color": "black", "markerfacecolor": "none", "markersize": 5.5, "markeredgewidth": 0.7}
        cross: Any = {"color": "black", "markersize": 3.2, "markeredgewidth": 0.7}
        for kind, marker, form in (("certified", "o", ring), ("tabular", "x", cross)):
            if kind in of_kind:
                axes.plot(of_kind[kind]["beta"], of_kind[kind]["mass"], marker, **form)
    axes.set_ylim(-0.04, 1.07)


def _caption(networks: pd.DataFrame, q: float) -> str:
    gaps = networks.assign(gap=networks["optimum"] - networks["p_correct"])
    largest = gaps.nlargest(1, "gap").iloc[0]
    where = f"{method_label(str(largest['method']))} at β = {largest['beta']:g}"
    return (
        f"Population optimum Z* against the coefficient: closed forms for three q, certified convex programs and "
        f"trained tabular policies on them, and the networks, whose reference has q = {q:.3f}. Last panel: what "
        f"the networks lack; most with {where}, {largest['gap']:.3f}."
    )


def _legend(q: float) -> list[Line2D]:
    grey: Any = {"color": "#444444"}
    low, high = OTHER_MASSES
    return [
        Line2D([], [], dashes=_DASHES[0], label=f"closed form, $q = {low:g}$", **grey),
        Line2D([], [], label=f"closed form, $q = {q:.2f}$ (the bandit's)", **grey),
        Line2D([], [], dashes=_DASHES[2], label=f"closed form, $q = {high:g}$", **grey),
        Line2D([], [], linestyle="none", marker="o", markerfacecolor="none", markersize=5.5, label="certified", **grey),
        Line2D([], [], linestyle="none", marker="x", label="tabular softmax, trained", **grey),
        Line2D([], [], linestyle="none", marker="o", markeredgecolor="black", label="bandit's MLPs", **grey),
    ]
