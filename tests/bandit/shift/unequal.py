"""A shift table in which nothing equals anything else, written down so that its scores can be worked out by hand.

Base has a prior correctness of 0.8 and GRPO of 0.3, so that retention is 200 (prior - 0.3). Base has a new correctness
of 0.2 and GRPO of 0.7, so that adaptation is 200 (new - 0.2). Both hold in every seed.
"""

from __future__ import annotations

import pandas as pd

LUCK = {0: 0.0, 1: 0.03, 2: -0.01, 3: 0.02, 4: -0.04}
"""What CoKL's prior correctness has besides in each reported seed; together nothing."""
SELECTION = (100, 101)

ENDS = {
    "cokl": {0.1: (20, 95), 1.0: (40, 85), 3.0: (30, 93), 10.0: (70, 80)},
    "cokl_without_term2": {0.3: (45, 92), 1.0: (110, 94)},
    "correct_forward_kl": {1.0: (20, 95), 10.0: (60, 75)},
    "forward_kl": {1.0: (35, 91), 10.0: (55, 60)},
}
"""Retention and adaptation on the reported seeds, means over them. Between its coefficients CoKL's adaptation passes 90
three times: where it retains 30, 33.75 and 39.2. CoKL without term 2 retains more than Base and always adapts by more
than 90."""
CHOOSING = {
    "cokl": {0.1: (10, 95), 1.0: (60, 85), 3.0: (50, 93), 10.0: (62, 80)},
    "cokl_without_term2": {0.3: (80, 92), 1.0: (40, 94)},
    "correct_forward_kl": {1.0: (5, 95), 10.0: (50, 75)},
    "forward_kl": {1.0: (40, 91), 10.0: (55, 62)},
}
"""The same on the selection seeds, which give CoKL's three crossings 35, 53.75 and 52.8."""
PASS_AT_K = {"cokl": 0.9, "cokl_without_term2": 0.5, "correct_forward_kl": 0.77, "forward_kl": 0.61}
CONDITIONAL_KL = {"cokl": 0.25, "cokl_without_term2": 3.0, "correct_forward_kl": 0.65, "forward_kl": 1.4}


def prior(retention: float) -> float:
    """The prior correctness of a retention."""
    return 0.3 + retention / 200


def new(adaptation: float) -> float:
    """The new correctness of an adaptation."""
    return 0.2 + adaptation / 200


def unequal_table() -> pd.DataFrame:
    """Last steps differ between runs, GRPO has a row more than the others, and no method has the others' coefficients.

    GRPO's drift on the prior task is 3 parts within the correct answers and 1 part of the mass.
    """
    rows = []
    for seed in (*LUCK, *SELECTION):
        role = "report" if seed in LUCK else "selection"

        def add(method: str, beta: float, step: int, ends: tuple[float, float], seed: int = seed, role: str = role):
            retention, adaptation = ends
            lucky = LUCK.get(seed, 0.0) if method == "cokl" else 0.0
            rows.append(
                {
                    "seed": seed, "mode": "sampled", "method": method, "beta": beta, "step": step,
                    "prior_correct": prior(retention) + lucky, "new_correct": new(adaptation),
                    "prior_pass_at_k": PASS_AT_K.get(method, 0.99), "conditional_kl": CONDITIONAL_KL.get(method, 2.0),
                    "mass_drift": 0.1 * (step > 0), "correct_drift": 0.3 * (step > 0), "incorrect_drift": 0.05,
                    "zero_correct_rate": 0.2, "role": role, "kl_prompts": 0 if beta == 0 else 16,
                }
            )  # fmt: skip

        add("base", 0.0, 0, (100, 0))
        for step, ends in ((0, (100, 0)), (5, (60, 30)), (9, (20, 80)), (20, (0, 100))):
            add("none", 0.0, step, ends)
        for method, betas in (ENDS if role == "report" else CHOOSING).items():
            for beta, ends in betas.items():
                add(method, beta, 0, (100, 0))
                add(method, beta, 20, ends)
    return pd.DataFrame(rows)
