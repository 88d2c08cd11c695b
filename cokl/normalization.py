"""Dual-anchor normalization of retention and adaptation (E.5)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cokl.support.errors import InputError


def dual_anchor(
    scores: npt.ArrayLike, zero: npt.ArrayLike, hundred: npt.ArrayLike, name: str = "scores"
) -> npt.NDArray[np.float64]:
    """100 (score - zero) / (hundred - zero), elementwise, exact at the anchors, which broadcast against the scores.

    Retention: zero is GRPO w/o KL, hundred is the base model. Adaptation: zero is the base, hundred is GRPO w/o KL.
    Raises InputError, naming `name`, where the anchors coincide: nothing was forgotten (or learned) to compare with.
    """
    scores, zero, hundred = (np.asarray(value, dtype=np.float64) for value in (scores, zero, hundred))
    if np.any(zero == hundred):
        raise InputError(f"{name}: the anchors base and grpo score the same, so there is nothing to normalize by")
    return 100 * ((scores - zero) / (hundred - zero))
