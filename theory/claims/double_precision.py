"""The float64 closed forms that the rest of the toolkit calls, against 50 digits over all magnitudes."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from mpmath import mp, mpf

from cokl.policy import CorrectSet, Policy
from theory.claim import BEYOND, Effort, Evidence, claim, largest, worst_of_each, worst_over
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
        **dict.fromkeys(("cokl", "correct_forward_kl", "correct_reverse_kl", "cokl_without_term2"), mpf(1)),
        "cokl_without_term1": mpf(0),
    }


def _measured(formulas: Formulas, name: str, q: float, beta: float) -> float:
    regularizer = formulas.restricted_reverse_kl if name == "restricted" else formulas.regularizers[name]
    return float(regularizer.optimal_mass(q, beta, FRACTION))


@claim("float64-optima", BEYOND)
def optima(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """every optimal_mass agrees with its closed form at 50 digits to 1e-12"""

    def errors(point: tuple[mpf, mpf]) -> list[mpf]:
        apart = []
        for name, exact in _exact_optima(formulas, *point).items():
            error = abs(mpf(_measured(formulas, name, *map(float, point))) - exact)
            apart.append(error / exact if exact else error)
        return apart

    with mp.workdps(1000):
        grid = parameter_grid(4 * effort.samples)
        worst = zip(_exact_optima(formulas, *grid[0]), worst_of_each(grid, errors), strict=True)
    return [
        Evidence("float64 against 50 digits", f"{name}: {len(grid)} points, {DOMAIN}", error, ACCEPTED)
        for name, error in worst
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
    near_0, near_1 = (1e-300, 1e-30, 1e-9, 1e-6, 1e-4, 1e-3), (1 - 1e-6, 1 - 1e-12, 1 - 2**-53)
    masses = [*near_0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, *near_1]
    sizes = [size for size in (1, 2, 3, 5, 8, 16, 64, 256, 1024) if size <= effort.largest_group]
    near = {size: [(1 + offset) / (size + 1) for offset in (-1e-9, 0.0, 1e-9, 0.5)] for size in sizes}

    def errors(point: tuple[float, int]) -> list[mpf]:
        z, size = point
        with mp.workdps(800):
            pairs = (
                (formulas.recovery(*point), formulas.recovery_closed_form(mp, mpf(z), size)),
                (formulas.recovery_derivative(*point), formulas.recovery_slope(mp, mpf(z), size)),
                (formulas.zero_correct_probability(*point), 1 - formulas.positive_count_probability(mp, mpf(z), size)),
            )
            return [0 if abs(exact) <= 1e-300 else abs(mpf(float(got)) / exact - 1) for got, exact in pairs]

    worst = worst_of_each(((z, size) for size in sizes for z in masses + near[size] if z < 1), errors)
    domain = f"Z from 1e-300 to 1 - 2^-53, G to {sizes[-1]}"
    return [
        Evidence("float64 against 50 digits", f"{name}: {domain}", error, ACCEPTED)
        for name, error in zip(("R_G", "R_G'", "(1 - Z)^G"), worst, strict=True)
    ]


@claim("float64-coverage", BEYOND)
def coverage(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """coverage@k agrees with mean of 1 - (1 - p)^k at 50 digits to 1e-12, for p down to 1e-18"""
    rng = np.random.default_rng(71)
    correct = CorrectSet.from_mask(torch.arange(20) < 5)

    def error(_: int) -> mpf:
        logits = rng.normal(size=20) * 10 ** rng.uniform(-1, 1)
        policy, apart = Policy(torch.from_numpy(logits), correct), []
        weights = [mp.exp(mpf(float(x))) for x in logits]
        for conditional, k in product((False, True), (1, 64, 1024)):
            total = mp.fsum(weights[:5] if conditional else weights)
            exact = mp.fsum(1 - (1 - weight / total) ** k for weight in weights[:5]) / 5
            apart.append(abs(mpf(float(formulas.coverage(policy, k, conditional))) / exact - 1))
        return largest(*apart)

    worst = worst_over(range(max(effort.samples // 8, 4)), error)
    return [Evidence("float64 against 50 digits", "20 actions, k = 1, 64, 1024", worst, ACCEPTED)]
