"""Counterexamples: where a statement of the paper needs a condition that it does not state (see FINDINGS.md)."""

from __future__ import annotations

import numpy as np
import torch
from mpmath import mp, mpf

from cokl.policy import CorrectSet, Policy
from theory.claim import BEYOND, Effort, Evidence, claim
from theory.claims.decomposition import EXACT
from theory.claims.decoupling import objective
from theory.definitions import ExactPolicy, kl, random_problems
from theory.formulas import Formulas
from theory.provers.convex import TOLERANCE, Reference, maximise


@claim(
    "cokl-has-no-value-at-zero-mass",
    "J_CoKL has no continuous extension to Z = 0, which the full simplex contains: its limits there fill (-inf, 0]",
    BEYOND,
)
def zero_mass(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """Along pi = z p+ + (1 - z) p- the limit z -> 0 is -beta KL(ref+ || p+), whatever p+ was chosen."""
    reference = ExactPolicy((mpf("0.3"), mpf("0.2"), mpf("0.5")), (True, True, False))
    z = mpf(10) ** -60
    limits = []
    for share in (mpf("0.6"), mpf("0.01"), mpf(10) ** -9):
        policy = ExactPolicy((z * share, z * (1 - share), 1 - z), reference.correct)
        limits.append(objective(policy, reference, mpf(1)))
    expected = [mpf(0), -kl([mpf("0.6"), mpf("0.4")], [mpf("0.01"), mpf("0.99")])]
    error = max(abs(limit - value) for limit, value in zip(limits, expected, strict=False))
    empty = Policy(
        torch.tensor([-np.inf, -np.inf, 0.0], dtype=torch.float64),
        CorrectSet.from_mask(torch.tensor([True, True, False])),
    )
    full = Policy(torch.zeros(3, dtype=torch.float64), empty.correct)
    convention = float(formulas.regularizers["cokl"].value(empty, full))
    detail = (
        f"limits {', '.join(f'{float(limit):.2f}' for limit in limits)}; the toolkit's value there is {convention:.2f}"
    )
    return [Evidence("50 digits", "Z = 1e-60, three choices of pi+", float(error), EXACT, detail)]


@claim(
    "exact-difference-needs-finite-kl",
    "Theorem 1's exact difference needs KL(ref+ || pi+) < inf: otherwise both objectives are -inf and the difference "
    "is undefined",
    BEYOND,
)
def infinite_difference(formulas: Formulas, effort: Effort) -> list[Evidence]:
    reference = ExactPolicy((mpf("0.3"), mpf("0.2"), mpf("0.5")), (True, True, False))
    values = [
        objective(ExactPolicy((z, mpf(0), 1 - z), reference.correct), reference, mpf(1))
        for z in (mpf("0.2"), mpf("0.7"))
    ]
    correct = CorrectSet.from_mask(torch.tensor([True, True, False]))
    missing = Policy(torch.tensor([0.0, -np.inf, 0.0], dtype=torch.float64), correct)
    value = float(formulas.regularizers["cokl"].value(missing, Policy(torch.zeros(3, dtype=torch.float64), correct)))
    wrong = sum(v != mpf("-inf") for v in values) + (value != np.inf)
    return [Evidence("50 digits", "a correct action that pi never takes", wrong, 0, "both objectives are -inf")]


@claim(
    "cokl-maximum-not-attained-by-softmax",
    "no softmax policy attains max J_CoKL = 1: J <= Z < 1 with finite logits; 1 is a supremum, approached along "
    "diverging logits",
    BEYOND,
)
def not_attained(formulas: Formulas, effort: Effort) -> list[Evidence]:
    wrong, nearest = 0, mpf(1)
    for problem in random_problems(81, effort.samples):
        shortfall = 1 - objective(problem.exact_policy, problem.exact_reference, mpf(1))
        wrong += not shortfall > 0
    problem = random_problems(82, 1)[0]
    for lead in (10, 100, 200):
        logits = [
            mpf(float(x)) + lead * bool(flag) for x, flag in zip(problem.reference_logits, problem.correct, strict=True)
        ]
        nearest = min(
            nearest, 1 - objective(ExactPolicy.from_logits(logits, problem.correct), problem.exact_reference, mpf(1))
        )
    return [
        Evidence(
            "50 digits",
            f"{effort.samples} random softmax policies",
            wrong,
            0,
            f"nearest on a path {float(nearest):.1e}",
        )
    ]


@claim(
    "edge-of-theorem2-at-q-0",
    "as q -> 0, Z*_FKL -> max(0, 1 - beta) but Z*_RKL -> 0: forward KL can learn what the reference never does, "
    "reverse KL cannot; at q = 1 both are 1 and there is no gap",
    BEYOND,
)
def edge(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """f(z) = z + beta (1 - q) log(1 - z) + ... at q = 0 has slope 1 - beta / (1 - z): root 1 - beta. Reverse KL has
    logit Z* = logit q + 1 / beta -> -inf."""
    worst = mpf(0)
    q = mpf(10) ** -100
    for beta in (mpf("0.01"), mpf("0.5"), mpf("0.99"), mpf("1.5"), mpf(100)):
        worst = max(worst, abs(formulas.forward_kl_optimum(mp, q, beta) - max(mpf(0), 1 - beta)))
        worst = max(worst, formulas.reverse_kl_optimum(mp, mpf(10) ** -2000, beta))
        worst = max(
            worst, 1 - formulas.forward_kl_optimum(mp, 1 - q, beta), 1 - formulas.reverse_kl_optimum(mp, 1 - q, beta)
        )
    return [Evidence("50 digits", "q = 1e-100 (1e-2000 for reverse KL) and 1 - 1e-100", float(worst), 1e-90)]


@claim(
    "regularized-limit-selects",
    "beta -> 0 is not beta = 0: the maximizers of Z alone are all policies with Z = 1, and every beta > 0 selects ref+ "
    "among them",
    BEYOND,
)
def selection(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """A collapsed policy has the same reward; the certified optimum at a small beta keeps ref+."""
    reference = Reference(np.array([0.05, 0.03, 0.02, 0.6, 0.3]), 3)
    worst, distance = 0.0, 0.0
    for name in ("forward_kl", "reverse_kl"):
        certificate = maximise(name, reference, 0.02)
        plus = certificate.solution[:3] / certificate.solution[:3].sum()
        worst, distance = max(worst, certificate.worst), max(distance, float(np.abs(plus - reference.plus).max()))
    return [Evidence("convex program", "beta = 0.02", worst, TOLERANCE, f"pi+ within {distance:.1e} of ref+")]
