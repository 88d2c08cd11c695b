"""Tables of the finite-group lab made by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd

ESTIMATES = [
    ("exact", math.inf, 1),
    ("exact", math.inf, 4),
    *itertools.product(["fresh"], [1.0, 8.0], [1, 4]),
    ("cached", 8.0, 1),
]


def made_metrics(seeds: int = 3) -> pd.DataFrame:
    """Two methods, two steps."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "seed": seed,
            "method": method,
            "beta": 0.3,
            "groups": groups,
            "group_size": size,
            "optimizer_steps": optimizer_steps,
            "step": step,
            "p_correct": rng.uniform(),
            "coverage_at_8": rng.uniform(),
            "coverage_at_8_correct": rng.uniform(),
            "conditional_kl": rng.uniform(),
            "zero_correct_rate": math.nan if groups == "exact" else rng.uniform(),
            "passes": step / 10 / optimizer_steps,
        }
        for seed, method, (groups, size, optimizer_steps), step in itertools.product(
            range(seeds), ["cokl", "reverse_kl"], ESTIMATES, [0, 50]
        )
    ]
    return pd.DataFrame(rows)
