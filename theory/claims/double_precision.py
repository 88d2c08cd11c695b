"""The float64 closed forms that the rest of the toolkit calls, against 50 digits over all magnitudes."""

from __future__ import annotations

import numpy as np
import torch
from mpmath import mp, mpf

from cokl.policy import CorrectSet, Policy
from theory.claim import BEYOND, Effort, Evidence, claim, largest
from theory.claims.gap import DOMAIN, parameter_grid
from theory.formulas import Formulas

ACCEPTED = 1e-12
"""Of relative errors: some 4500 roundings of float64."""
FRACTION = 0.06


def _exact_optima(formulas: Formulas, q: mpf, beta: mpf) -> dict[str, mpf]:
    return {
        "forward_kl": formulas.forward_kl_optimum(mp, q, beta),
        "reverse_kl": formulas.reverse_kl_optimum(mp, q, beta),
        "jensen_shannon": formulas.jensen_shannon_optimum(mp, q, beta),
        "entropy": formulas.entropy_optimum(mp, mpf(FRACTION), beta),
        "restricted": min(mpf(1), formulas.restricted_reverse_kl_optimum(mp, q, beta)),
        "cokl": mpf(1),
        "correct_forward_kl": mpf(1),
        "correct_reverse_kl": mpf(1),
        "cokl_without_term2": mpf(1),
        "cokl_without_term1": mpf(0),
    }


def _measured(formulas: Formulas, name: str, q: float, beta: float) -> float:
    regularizer = formulas.restricted_reverse_kl if name == "restricted" else formulas.regularizers[name]
    return float(regularizer.optimal_mass(q, beta, FRACTION))


@claim("float64-optima", BEYOND)
def optima(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """every optimal_mass agrees with its closed form at 50 digits to 1e-12"""
    worst = dict.fromkeys(_exact_optima(formulas, mpf("0.5"), mpf(1)), 0.0)
    with mp.workdps(1000):
        grid = parameter_grid(4 * effort.samples)
        for q, beta in grid:
            for name, exact in _exact_optima(formulas, q, beta).items():
                error = abs(mpf(_measured(formulas, name, float(q), float(beta))) - exact)
                worst[name] = largest(worst[name], float(error / exact if exact else error))
    return [
        Evidence("float64 against 50 digits", f"{name}: {len(grid)} points, {DOMAIN}", error, ACCEPTED)
        for name, error in worst.items()
    ]


@claim("float64-optima-at-the-edges", BEYOND)
def edges(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """every optimal_mass is finite and in [0, 1] at the ends of double precision"""
    wrong, drift = 0, 0.0
    tiny, huge = np.nextafter(0, 1), np.finfo(float).max
    with np.errstate(all="raise", under="ignore"):
        for name in _exact_optima(formulas, mpf("0.5"), mpf(1)):
            for q in (tiny, 1e-300, 0.5, 1 - 2**-53):
                for beta in (tiny, 1e-300, 1.0, 1e200, huge):
                    mass = _measured(formulas, name, float(q), float(beta))
                    wrong += not (np.isfinite(mass) and 0 <= mass <= 1)
                    if beta >= 1e200 and name in ("forward_kl", "reverse_kl", "jensen_shannon") and q > 1e-300:
                        drift = largest(drift, abs(mass / q - 1))
                    if beta <= 1e-300 and q >= 0.5 and name != "cokl_without_term1":
                        drift = largest(drift, abs(mass - 1))
    return [
        Evidence("float64", "q and beta from 5e-324 to the largest double", wrong, 0, "values outside [0, 1]"),
        Evidence("float64", "limits q (beta >= 1e200) and 1 (beta <= 1e-300)", drift, ACCEPTED),
    ]


@claim("float64-recovery", BEYOND)
def recovery(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """R_G, R_G' and (1 - Z)^G agree with 50 digits to 1e-12 for Z near 0 and 1 and large G

    Points are compared where the exact value is a normal double. The exact R_G is summed with as many extra digits
    as its closed form cancels."""
    worst = dict.fromkeys(("R_G", "R_G'", "(1 - Z)^G"), mpf(0))
    sizes = [size for size in (1, 2, 3, 5, 8, 16, 64, 256, 1024) if size <= effort.largest_group]
    masses = [
        1e-300,
        1e-30,
        1e-9,
        1e-6,
        1e-4,
        1e-3,
        0.01,
        0.1,
        0.3,
        0.5,
        0.7,
        0.9,
        0.99,
        1 - 1e-6,
        1 - 1e-12,
        1 - 2**-53,
    ]
    for size in sizes:
        near = [(1 + offset) / (size + 1) for offset in (-1e-9, 0.0, 1e-9, 0.5)]
        for z in (mass for mass in masses + near if mass < 1):
            with mp.workdps(800):
                exact = {
                    "R_G": formulas.recovery_closed_form(mp, mpf(z), size),
                    "R_G'": formulas.recovery_slope(mp, mpf(z), size),
                    "(1 - Z)^G": 1 - formulas.positive_count_probability(mp, mpf(z), size),
                }
                measured = {
                    "R_G": formulas.recovery(z, size),
                    "R_G'": formulas.recovery_derivative(z, size),
                    "(1 - Z)^G": formulas.zero_correct_probability(z, size),
                }
                for name, value in exact.items():
                    if not abs(value) <= 1e-300:
                        worst[name] = largest(worst[name], abs(mpf(float(measured[name])) / value - 1))
    domain = f"Z from 1e-300 to 1 - 2^-53, G to {sizes[-1]}"
    return [Evidence("float64 against 50 digits", f"{name}: {domain}", float(e), ACCEPTED) for name, e in worst.items()]


@claim("float64-coverage", BEYOND)
def coverage(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """coverage@k agrees with mean of 1 - (1 - p)^k at 50 digits to 1e-12, for p down to 1e-18"""
    worst = mpf(0)
    rng = np.random.default_rng(71)
    for _ in range(max(effort.samples // 8, 4)):
        logits = rng.normal(size=20) * 10 ** rng.uniform(-1, 1)
        mask = torch.arange(20) < 5
        policy = Policy(torch.from_numpy(logits), CorrectSet.from_mask(mask))
        weights = [mp.exp(mpf(float(x))) for x in logits]
        for conditional in (False, True):
            total = mp.fsum(weights[:5] if conditional else weights)
            for k in (1, 64, 1024):
                exact = mp.fsum(1 - (1 - weight / total) ** k for weight in weights[:5]) / 5
                worst = largest(worst, abs(mpf(float(formulas.coverage(policy, k, conditional))) / exact - 1))
    return [Evidence("float64 against 50 digits", "20 actions, k = 1, 64, 1024", float(worst), ACCEPTED)]
