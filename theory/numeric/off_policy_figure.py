"""The exact bias of the off-policy weights gamma (Eq. 16) against group size, policy mismatch and clipping."""

from __future__ import annotations

import math

import matplotlib as mpl
import pandas as pd

from figures.style import RC, TEXT_WIDTH, Picture, new_figure

_LOOKS = (("#000000", "o"), ("#0072B2", "s"), ("#D55E00", "^"))


def draw(table: pd.DataFrame) -> Picture:
    """table: `theory.numeric.off_policy.bias_table`'s. Left: over G at a fixed mismatch, with the limits G -> inf that
    clipping leaves. Right: over the mismatch at a fixed G."""
    with mpl.rc_context(RC):
        figure, (left, right) = new_figure(TEXT_WIDTH, 2.5, ncols=2, sharey=True)
        sizes, mismatches = (table[table["over"] == over] for over in ("size", "mismatch"))
        for (value, rows), (color, marker) in zip(
            sizes.groupby("epsilon_is", sort=False, dropna=False), _LOOKS, strict=True
        ):
            epsilon = float(str(value))
            clipped = not math.isnan(epsilon)
            name = rf"$\epsilon_{{\mathrm{{IS}}}} = {epsilon:g}$" if clipped else "no clipping"
            left.plot(rows["size"], rows["bias"], color=color, marker=marker, label=name)
            if clipped:
                left.axhline(rows["limit"].iloc[0], color=color, linewidth=0.8, dashes=(2, 2))
            others = mismatches[mismatches["epsilon_is"].isna() != clipped]
            others = others[others["epsilon_is"] == epsilon] if clipped else others
            right.plot(others["mismatch"], others["bias"], color=color, marker=marker, label=name)
        left.set_xscale("log", base=2)
        ticks = sorted(sizes["size"].unique())
        left.set_xticks(ticks, [str(size) for size in ticks])
        mismatch, size = sizes["mismatch"].iloc[0], mismatches["size"].iloc[0]
        left.set_xlabel(rf"group size $G$ (mismatch {mismatch:.2f} nats)")
        left.set_ylabel("bias (total variation)")
        right.set_xlabel(
            rf"mismatch $D_{{\mathrm{{KL}}}}(\pi^{{+}}\,\Vert\,\pi_{{\mathrm{{old}}}}^{{+}})$ [nats] ($G = {size}$)"
        )
        left.legend()
        free = sizes[sizes["epsilon_is"].isna()].set_index("size")["bias"]
        figure.caption = (
            f"Exact bias of the off-policy weights gamma at a mismatch of {mismatch:.2f} nats: without clipping "
            f"{free.iloc[0]:.3f} at G = {free.index[0]} and {free.iloc[-1]:.3f} at G = {free.index[-1]}; clipping "
            "leaves what the dashed lines show however large the group. Right: against the mismatch."
        )
    return figure
