"""A shift table made by hand: known scores at every coefficient, with a little noise from seed to seed."""

from __future__ import annotations

import numpy as np
import pandas as pd

SEEDS = {"selection": (100, 101), "report": (0, 1, 2, 3, 4)}
BASE, NONE = (0.8, 0.2), (0.3, 0.9)

# method -> beta -> (final prior, final new, mass drift, correct drift)
POINTS = {
    "none": {0.0: (*NONE, 0.5, 1.5)},
    "cokl": {0.1: (0.5, 0.88, 0.3, 0.4), 1.0: (0.7, 0.88, 0.1, 0.2), 10.0: (0.75, 0.5, 0.05, 0.1)},
    "correct_forward_kl": {0.1: (0.4, 0.88, 0.3, 0.6), 1.0: (0.68, 0.83, 0.1, 0.3), 10.0: (0.72, 0.4, 0.05, 0.1)},
    "correct_reverse_kl": {
        0.001: (0.5, 0.86, 0.3, 0.6),
        0.01: (0.49, 0.85, 0.3, 0.6),
        0.1: (0.33, 0.88, 0.4, 0.9),
        1.0: (0.5, 0.8, 0.3, 0.6),
        10.0: (0.7, 0.4, 0.1, 0.2),
    },
    "forward_kl": {0.1: (0.45, 0.87, 0.3, 0.5), 1.0: (0.64, 0.82, 0.1, 0.3), 10.0: (0.72, 0.4, 0.05, 0.1)},
    "reverse_kl": {
        0.001: (0.52, 0.87, 0.3, 0.5),
        0.01: (0.5, 0.86, 0.3, 0.5),
        0.1: (0.35, 0.88, 0.4, 0.8),
        1.0: (0.5, 0.8, 0.3, 0.5),
        10.0: (0.7, 0.3, 0.1, 0.2),
    },
    "cokl_without_term1": {0.1: (0.31, 0.89, 0.5, 1.4), 1.0: (0.32, 0.86, 0.5, 1.3), 10.0: (0.3, 0.2, 0.6, 1.6)},
    "cokl_floor": {0.1: (0.5, 0.86, 0.3, 0.4), 1.0: (0.7, 0.82, 0.1, 0.2), 10.0: (0.75, 0.45, 0.05, 0.1)},
}


def shift_table(points: dict = POINTS, jitter: float = 1e-3, batches: tuple[int, ...] = (16, 8, 32)) -> pd.DataFrame:
    """Every method at steps 0, 10 and 20; CoKL at its middle coefficient with other KL batches too."""
    rng = np.random.default_rng(0)
    rows = []

    def add(role: str, seed: int, method: str, beta: float, prompts: int, end: tuple) -> None:
        start = (*BASE, 0.0, 0.0)
        for step in (0,) if method == "base" else (0, 10, 20):
            noise = jitter * rng.standard_normal(4) * (step > 0)
            prior, new, mass, correct = (a + step / 20 * (b - a) + e for a, b, e in zip(start, end, noise, strict=True))
            rows.append(
                {
                    "seed": seed,
                    "mode": "exact",
                    "method": method,
                    "beta": beta,
                    "step": step,
                    "prior_correct": prior + 0.01 * (seed % 10),
                    "new_correct": new + 0.005 * (seed % 10),
                    "prior_pass_at_k": 1 - (1 - prior) ** 8,
                    "conditional_kl": correct * 2,
                    "mass_drift": mass,
                    "correct_drift": correct,
                    "incorrect_drift": 0.01,
                    "zero_correct_rate": (1 - prior) ** 8,
                    "role": role,
                    "kl_prompts": prompts,
                }
            )

    for role, seeds in SEEDS.items():
        for seed in seeds:
            add(role, seed, "base", 0.0, 0, (*BASE, 0.0, 0.0))
            for method, betas in points.items():
                for beta, end in betas.items():
                    add(role, seed, method, beta, 0 if method == "none" else batches[0], end)
            if role == "report" and "cokl" in points:
                prior, new, *drifts = points["cokl"][1.0]
                for size in batches[1:]:
                    add(role, seed, "cokl", 1.0, size, (prior + 0.002 * (size - 16), new, *drifts))
    return pd.DataFrame(rows)
