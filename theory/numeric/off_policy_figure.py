"""The exact bias of the off-policy weights gamma (Eq. 16) against group size, policy mismatch and clipping."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from figures.marks import Drawing, Panel, join, marks
from figures.matplotlib_renderer import render
from figures.style import Picture, Style

_LOOKS = (Style("#000000", "o"), Style("#0072B2", "s"), Style("#D55E00", "^"))


def draw(table: pd.DataFrame) -> Picture:
    """table: `theory.numeric.off_policy.bias_table`'s. Left: over G at a fixed mismatch, with the limits G -> inf that
    clipping leaves. Right: over the mismatch at a fixed G."""
    sizes, mismatches = (table[table["over"] == over] for over in ("size", "mismatch"))
    parts, styles = [], dict[str, Style]()
    for (value, rows), look in zip(sizes.groupby("epsilon_is", sort=False, dropna=False), _LOOKS, strict=True):
        epsilon = float(str(value))
        clipped = not math.isnan(epsilon)
        name = rf"$\epsilon_{{\mathrm{{IS}}}} = {epsilon:g}$" if clipped else "no clipping"
        styles |= {name: look, f"limit {name}": replace(look, dashes=(2, 2), width=0.8)}
        others = mismatches[mismatches["epsilon_is"].isna() != clipped]
        others = others[others["epsilon_is"] == epsilon] if clipped else others
        parts.append(marks("size", "line", label=name, style=name, x=rows["size"], y=rows["bias"]))
        parts.append(marks("mismatch", "line", label=name, style=name, x=others["mismatch"], y=others["bias"]))
        if clipped:
            parts.append(marks("size", "hline", style=f"limit {name}", y=rows["limit"].iloc[:1]))
    mismatch, size = sizes["mismatch"].iloc[0], mismatches["size"].iloc[0]
    distance = r"$D_{\mathrm{KL}}(\pi^{+}\,\Vert\,\pi_{\mathrm{old}}^{+})$"
    at = rf"group size $G$ (mismatch {mismatch:.2f} nats)"
    panels = {
        "size": Panel("", at, "bias (total variation)", "log2", sorted(sizes["size"].unique())),
        "mismatch": Panel(x=rf"mismatch {distance} [nats] ($G = {size}$)"),
    }
    free = sizes[sizes["epsilon_is"].isna()].set_index("size")["bias"]
    caption = (
        f"Exact bias of the off-policy weights gamma at a mismatch of {mismatch:.2f} nats: without clipping "
        f"{free.iloc[0]:.3f} at G = {free.index[0]} and {free.iloc[-1]:.3f} at G = {free.index[-1]}; clipping "
        "leaves what the dashed lines show however large the group. Right: against the mismatch."
    )
    return render(Drawing(join(parts), panels, 2, 2.7, caption, styles, shared={"sharey": True}))
