"""The exact bias of the off-policy estimator of grad log Z (Eqs. 14-17), over mismatch, clipping and G."""

from __future__ import annotations

import numpy as np
import pandas as pd

from theory.finite_group import expected_rollout_weights


def behavior_policy(current: np.ndarray, mismatch: float, mass: float, seed: int) -> np.ndarray:
    """(K,): a behaviour policy of correctness `mass` whose pi+ is tilted from `current` by `mismatch` Gaussian nats."""
    tilt = np.random.default_rng(seed).normal(size=len(current))
    weights = current * np.exp(mismatch * (tilt - tilt.mean()))
    return mass * weights / weights.sum()


def bias(current: np.ndarray, behavior: np.ndarray, size: int, epsilon_is: float | None) -> float:
    """Total variation, in [0, 1], between pi+ and E[gamma | a correct response in the group of `size`].

    current, behavior: (K,), probabilities of the correct actions. epsilon_is: clipping range; None for none.
    """
    reached = 1 - (1 - behavior.sum()) ** size
    expected = expected_rollout_weights(current, behavior, size, epsilon_is)
    return float(np.abs(expected / reached - current / current.sum()).sum() / 2)


def clipped_limit(current: np.ndarray, behavior: np.ndarray, epsilon_is: float) -> float:
    """Total variation, in [0, 1], between pi+ and the limit of clipped weights as G -> inf: behavior * clipped ratio.

    current, behavior: (K,), probabilities of the correct actions.
    """
    limit = behavior * (current / behavior).clip(1 - epsilon_is, 1 + epsilon_is)
    return float(np.abs(limit / limit.sum() - current / current.sum()).sum() / 2)


CURRENT = np.array([0.16, 0.08, 0.04, 0.02])
"""Probabilities (4,) of the correct actions under the current policy of the bias studies; Z = 0.3."""
CLIPPING = (None, 0.5, 0.2)
SIZES = (1, 2, 4, 8, 16, 32)
MISMATCH = 0.7
MISMATCHES = np.linspace(0, 1.5, 16)
GROUP_SIZE = 8
_SEED = 63


def bias_table() -> pd.DataFrame:
    """The bias over G at a fixed mismatch, and over the mismatch at a fixed G, for each clipping range; Z_old = Z.

    Columns: over ("size" or "mismatch"), epsilon_is (NaN for no clipping), size, mismatch (KL in nats), bias (total
    variation), limit (what clipping leaves as G -> inf; NaN without clipping).
    """
    cases = [("size", size, MISMATCH) for size in SIZES]
    cases += [("mismatch", GROUP_SIZE, mismatch) for mismatch in MISMATCHES]
    plus, rows = CURRENT / CURRENT.sum(), []
    for epsilon in CLIPPING:
        for over, size, mismatch in cases:
            old = behavior_policy(CURRENT, mismatch, float(CURRENT.sum()), _SEED)
            kl = float((plus * np.log(plus / (old / old.sum()))).sum())
            limit = np.nan if epsilon is None else clipped_limit(CURRENT, old, epsilon)
            clipping = np.nan if epsilon is None else epsilon
            rows.append((over, clipping, size, kl, bias(CURRENT, old, size, epsilon), limit))
    return pd.DataFrame(rows, columns=["over", "epsilon_is", "size", "mismatch", "bias", "limit"])
