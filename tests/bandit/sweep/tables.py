"""A sweep table made by hand."""

from __future__ import annotations

import itertools

import pandas as pd


def sweep_table(points: dict[str, dict[float, tuple[float, float, float]]], seeds: int = 5) -> pd.DataFrame:
    """A sweep table: method -> beta -> final (correctness, coverage, conditional KL), reached half-way at step 100."""
    rows = []
    for seed, (method, betas) in itertools.product(range(seeds), points.items()):
        for (beta, (correctness, coverage, kl)), step in itertools.product(betas.items(), (0, 100, 200)):
            done, jitter = step / 200, 1e-4 * seed
            rows.append(
                {
                    "seed": seed,
                    "method": method,
                    "beta": beta,
                    "step": step,
                    "p_correct": 0.1 + done * (correctness - 0.1) + jitter,
                    "coverage_at_64": 0.8 + done * (coverage - 0.8) + jitter,
                    "coverage_at_64_correct": 0.9 + done * (coverage - 0.9) + jitter,
                    "conditional_kl": done * kl + jitter,
                }
            )
    return pd.DataFrame(rows)


GOOD = {
    "entropy": {0.001: (0.964, 0.15, 2.9), 0.1: (0.70, 0.40, 1.0)},
    "none": {0.0: (0.98, 0.09, 6.0)},
    "forward_kl": {0.001: (0.965, 0.10, 3.0), 0.1: (0.80, 0.30, 1.2)},
    "cokl": {0.001: (0.975, 0.20, 2.0), 0.1: (0.955, 0.60, 0.3)},
}
