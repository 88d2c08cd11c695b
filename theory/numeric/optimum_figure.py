"""Theory against practice: Z*(beta) of each regularizer, with certified optima, tabular policies and the bandit's MLPs.

Curves are the closed forms for several q. Rings: certified convex programs on random references. Crosses: tabular
softmax policies trained by gradient. Filled markers: the final correctness of the bandit's networks, mean over seeds.
The last panel is what shared parameters and finite training cost: the unrestricted optimum, averaged over the
reference's q on the test inputs, minus the networks' correctness.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from cokl.methods import label as method_label
from figures.marks import Drawing, Panel, join, marks
from figures.matplotlib_renderer import render
from figures.style import Picture, Style, method_style

OTHER_MASSES = (0.02, 0.5)
"""The q that are drawn beside the bandit's."""
_DASHES: tuple[tuple[float, ...], ...] = ((1.2, 1.2), (), (4, 1.5))
_SHADES = (0.4, 1.0, 0.7)
_AXIS: Any = {"x": r"coefficient $\beta$", "scale": "log10", "x_ticks": (1e-3, 1e-2, 1e-1, 1, 10)}
_GREY = "#444444"
_STYLES = {
    "certified": Style("black", "o", size=4.5, fill="none", edge_width=0.5, width=0),
    "tabular": Style("black", "x", size=3, edge_width=0.5, width=0),
    "networks": Style(_GREY, "o", size=3, edge_width=0, width=0),
    "low q": Style(_GREY, dashes=_DASHES[0]),
    "q": Style(_GREY),
    "high q": Style(_GREY, dashes=_DASHES[2]),
    "zero": Style("black", width=0.6),
}


def draw(
    curves: pd.DataFrame, networks: pd.DataFrame, q: float, correct_fractions: dict[float, float], note: str = ""
) -> Picture:
    """curves: `theory.numeric.optimum_curves`'s table. networks: `bandit.sweep.references.reached_and_optimal`'s.

    q: the bandit's. correct_fractions, for each q of `curves`, in its order, the share of correct actions for entropy.
    note: what is said below the panels.
    """
    styles = dict(_STYLES)
    panels, parts = {}, []
    for number, (name, ours) in enumerate(curves.groupby("method", sort=False)):
        method = str(name)
        panels[method] = Panel(
            method_label(method), y=r"correctness $Z$" if number % 3 == 0 else "", y_limits=(-0.04, 1.07), **_AXIS
        )
        for which, (_, rows) in enumerate(ours.groupby("q", sort=False)):
            styles[f"{method} {which}"] = replace(
                method_style(method), marker="", dashes=_DASHES[which], alpha=_SHADES[which], order=2
            )
            for kind, of_kind in rows.groupby("kind", sort=False):
                closed = kind == "closed form"
                look = {"method": method, "style": f"{method} {which}" if closed else str(kind), "run": which}
                parts.append(marks(method, "line" if closed else "point", x=of_kind["beta"], y=of_kind["mass"], **look))
        points = networks[networks["method"] == method]
        spread = points["p_correct_std"].fillna(0)
        ends = {"low": points["p_correct"] - spread, "high": points["p_correct"] + spread}
        look = {"method": method, "style": f"{method} networks"}
        parts.append(marks(method, "point", x=points["beta"], y=points["p_correct"], **look, **ends))
        styles[f"{method} networks"] = replace(method_style(method), size=3, edge_width=0, order=5)
        if method == "entropy":  # q does not enter, the share of correct actions does
            other = correct_fractions[OTHER_MASSES[-1]]
            shares = rf"solid: $c = {correct_fractions[q]:g}$" + "\n" + rf"dashed: $c = {other:g}$"
            parts.append(marks(method, "text", x=0.04, y=0.06, text=shares))
        missing = points["optimum"] - points["p_correct"]
        parts.append(marks("missing", "line", method=method, x=points["beta"], y=missing))
    parts.append(marks("missing", "hline", style="zero", y=0.0))
    panels["missing"] = Panel(r"What the networks lack: $Z^\star - P_{\mathrm{corr}}$", **_AXIS)
    low, high = OTHER_MASSES
    legend = {
        f"closed form, $q = {low:g}$": "low q",
        f"closed form, $q = {q:.2f}$ (the bandit's)": "q",
        f"closed form, $q = {high:g}$": "high q",
        "certified": "certified",
        "tabular softmax, trained": "tabular",
        "bandit's MLPs": "networks",
    }
    return render(
        Drawing(join(parts), panels, 3, 4.3, _caption(networks, q), styles, legend, shared={"sharex": True}, note=note)
    )


def _caption(networks: pd.DataFrame, q: float) -> str:
    gaps = networks.assign(gap=networks["optimum"] - networks["p_correct"])
    largest = gaps.nlargest(1, "gap").iloc[0]
    where = f"{method_label(str(largest['method']))} at β = {largest['beta']:g}"
    return (
        f"Population optimum Z* against the coefficient: closed forms for three q, certified convex programs and "
        f"trained tabular policies on them, and the networks, whose reference has q = {q:.3f}. Last panel: what "
        f"the networks lack; most with {where}, {largest['gap']:.3f}."
    )
