"""The exact bias of the off-policy weights gamma (Eq. 16) against group size, policy mismatch and clipping."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from figures.style import RC, TEXT_WIDTH, new_figure
from theory.off_policy import behavior_policy, bias, clipped_limit

CURRENT = np.array([0.16, 0.08, 0.04, 0.02])
CLIPPING = {
    None: ("#000000", "o", "no clipping"),
    0.5: ("#0072B2", "s", r"$\epsilon_{\mathrm{IS}} = 0.5$"),
    0.2: ("#D55E00", "^", r"$\epsilon_{\mathrm{IS}} = 0.2$"),
}
SIZES = (1, 2, 4, 8, 16, 32)
MISMATCHES = np.linspace(0, 1.5, 16)


def draw() -> Figure:
    """Left: bias over G at a fixed mismatch, with the limits G -> inf that clipping leaves. Right: over the mismatch at
    G = 8. Four correct actions, Z = Z_old = 0.3; the bias is the total variation
    between E[gamma | a correct response in the group] and pi+."""
    with mpl.rc_context(RC):
        figure, (left, right) = new_figure(TEXT_WIDTH, 2.5, ncols=2, sharey=True)
        old = behavior_policy(CURRENT, 0.7, CURRENT.sum(), seed=63)
        for epsilon, (color, marker, label) in CLIPPING.items():
            left.plot(
                SIZES,
                [bias(CURRENT, old, size, epsilon).total for size in SIZES],
                color=color,
                marker=marker,
                label=label,
            )
            if epsilon is not None:
                left.axhline(clipped_limit(CURRENT, old, epsilon), color=color, linewidth=0.8, dashes=(2, 2))
            pairs = [
                bias(CURRENT, behavior_policy(CURRENT, mismatch, CURRENT.sum(), seed=63), 8, epsilon)
                for mismatch in MISMATCHES
            ]
            right.plot(
                [pair.kl for pair in pairs], [pair.total for pair in pairs], color=color, marker=marker, label=label
            )
        mismatch = bias(CURRENT, old, 1, None).kl
        left.set_xscale("log", base=2)
        left.set_xticks(SIZES, [str(size) for size in SIZES])
        left.set_xlabel(rf"group size $G$ (mismatch {mismatch:.2f} nats)")
        left.set_ylabel("bias (total variation)")
        right.set_xlabel(r"mismatch $D_{\mathrm{KL}}(\pi^{+}\,\Vert\,\pi_{\mathrm{old}}^{+})$ [nats] ($G = 8$)")
        left.legend()
    return figure
