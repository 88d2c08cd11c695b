"""A plasticity table made by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bandit.plasticity.config import PlasticityConfig

STEPS, SEEDS = (0, 100, 400), range(4)
CONFIG = PlasticityConfig(
    methods=("cokl", "entropy"), seeds=4, selection_seeds=1, changes=("narrowed-2", "moved-2"),
    matched_correctness=0.95, evaluated_steps=STEPS,
)  # fmt: skip


def lab() -> pd.DataFrame:
    """Everything differs: seeds, methods, coefficients, changes, modes, steps; only the match's weights are a quarter
    and three quarters, since correctness is 0.98 and 0.94 at the two coefficients.
    """
    draw, lines = np.random.default_rng(7), []
    for seed in (*SEEDS, 1000):
        starts = [(method, beta) for method in CONFIG.methods for beta in (0.1, 0.2)]
        for method, beta in [*starts, ("reference", 0.0), ("none", 0.0)]:
            correct = {0.1: 0.98, 0.2: 0.94, 0.0: 0.3}[beta]
            for change in CONFIG.changes:
                for mode in ("sampled", "exact"):
                    for step in STEPS:
                        lines.append(
                            {"seed": seed, "role": "report" if seed in SEEDS else "selection", "method": method,
                             "beta": beta, "change": change, "mode": mode, "step": step, "reward": draw.uniform(),
                             "below_half": 0.0, "p_correct": correct, "coverage_at_64": 0.1,
                             "coverage_at_64_correct": 0.1, "conditional_kl": 0.1}
                        )  # fmt: skip
    return pd.DataFrame(lines)
