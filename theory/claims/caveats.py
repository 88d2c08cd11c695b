"""Counterexamples: where a statement of the paper needs a condition that it does not state (see FINDINGS.md)."""

from __future__ import annotations

import numpy as np
import torch
from mpmath import mp, mpf

from cokl.policy import CorrectSet, Policy
from theory.claim import BEYOND, Effort, Evidence, claim, largest, worst_of_each, worst_over
from theory.claims.decomposition import EXACT
from theory.claims.decoupling import objective
from theory.definitions import ExactPolicy, Problem, kl, random_problems
from theory.formulas import Formulas
from theory.provers.convex import TOLERANCE, Reference, maximise


@claim("cokl-has-no-value-at-zero-mass", BEYOND)
def zero_mass(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """J_CoKL has no continuous extension to Z = 0, which the full simplex contains: its limits there fill (-inf, 0]

    Along pi = z p+ + (1 - z) p- the limit z -> 0 is -beta KL(ref+ || p+), whatever p+ was chosen."""
    reference = ExactPolicy((mpf("0.3"), mpf("0.2"), mpf("0.5")), (True, True, False))
    z = mpf(10) ** -60
    limits, errors = [], []
    for share in (mpf("0.6"), mpf("0.01"), mpf(10) ** -9):
        policy = ExactPolicy((z * share, z * (1 - share), 1 - z), reference.correct)
        limits.append(objective(policy, reference, mpf(1)))
        errors.append(abs(limits[-1] + kl([mpf("0.6"), mpf("0.4")], [share, 1 - share])))
    empty = Policy(
        torch.tensor([-np.inf, -np.inf, 0.0], dtype=torch.float64),
        CorrectSet.from_mask(torch.tensor([True, True, False])),
    )
    full = Policy(torch.zeros(3, dtype=torch.float64), empty.correct)
    convention = float(formulas.regularizers["cokl"].value(empty, full))
    detail = (
        f"limits {', '.join(f'{float(limit):.2f}' for limit in limits)}; the toolkit's value there is {convention:.2f}"
    )
    return [
        Evidence("50 digits", "Z = 1e-60, three choices of pi+", float(largest(*errors)), EXACT, detail),
        Evidence("float64", "the toolkit's value at Z = 0, a convention", float(convention != np.inf), 0),
    ]


@claim("exact-difference-needs-finite-kl", BEYOND)
def infinite_difference(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """Theorem 1's exact difference needs KL(ref+ || pi+) < inf: otherwise both objectives are -inf and the difference
    is undefined"""
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


@claim("cokl-maximum-not-attained-by-softmax", BEYOND)
def not_attained(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """no softmax policy attains max J_CoKL = 1: J <= Z < 1 with finite logits; 1 is a supremum, approached along
    diverging logits

    Along logits + lead on the correct actions, started at the reference, pi+ = ref+ and the odds of a wrong answer
    fall as exp(-lead): 1 - J = 1 - Z = p exp(-lead) / (q + p exp(-lead))."""
    problem = random_problems(82, 1)[0]
    q = problem.exact_reference.mass

    def errors(problem: Problem) -> tuple[float, float]:
        shortfall = 1 - objective(problem.exact_policy, problem.exact_reference, mpf(1))
        penalty = formulas.regularizers["cokl"].value(problem.policy, problem.reference)
        measured = float(problem.policy.log_incorrect_mass.exp() + penalty)
        attained = (not shortfall > 0) + (not measured >= 0)
        return float(attained), float(abs(measured - shortfall) / largest(1, shortfall))

    def along(lead: int) -> mpf:
        logits = [
            mpf(float(x)) + lead * bool(flag) for x, flag in zip(problem.reference_logits, problem.correct, strict=True)
        ]
        shortfall = 1 - objective(ExactPolicy.from_logits(logits, problem.correct), problem.exact_reference, mpf(1))
        odds = (1 - q) / q * mp.exp(-lead)
        return abs(shortfall / (odds / (1 + odds)) - 1)

    wrong, disagreement = worst_of_each(random_problems(81, effort.samples), errors)
    return [
        Evidence("50 digits", f"{effort.samples} random softmax policies: J >= 1", wrong, 0),
        Evidence("float64 against 50 digits", "the toolkit's 1 - J", disagreement, 1e-12),
        Evidence("50 digits", "1 - J falls as exp(-lead) to exp(-200)", worst_over((10, 100, 200), along), 1e-25),
    ]


@claim("edge-of-theorem2-at-q-0", BEYOND)
def edge(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """as q -> 0, Z*_FKL -> max(0, 1 - beta) but Z*_RKL -> 0: forward KL can learn what the reference never does,
    reverse KL cannot; at q = 1 both are 1 and there is no gap

    f(z) = z + beta (1 - q) log(1 - z) + ... at q = 0 has slope 1 - beta / (1 - z): root 1 - beta. Reverse KL has
    logit Z* = logit q + 1 / beta -> -inf."""
    forward, reverse, q = formulas.forward_kl_optimum, formulas.reverse_kl_optimum, mpf(10) ** -100

    def error(number: str) -> mpf:
        beta = mpf(number)
        at_zero = abs(forward(mp, q, beta) - max(mpf(0), 1 - beta)), reverse(mp, mpf(10) ** -2000, beta)
        return largest(*at_zero, 1 - forward(mp, 1 - q, beta), 1 - reverse(mp, 1 - q, beta))

    worst = worst_over(("0.01", "0.5", "0.99", "1.5", "100"), error)
    return [Evidence("50 digits", "q = 1e-100 (1e-2000 for reverse KL) and 1 - 1e-100", worst, 1e-90)]


@claim("regularized-limit-selects", BEYOND)
def selection(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """beta -> 0 is not beta = 0: the maximizers of Z alone are all policies with Z = 1, and every beta > 0 selects ref+
    among them

    Every policy with Z = 1 has the reward 1, so the reward alone does not choose. The certified optimum at a small
    beta is ref+; a collapsed policy, pi+ on one action and as correct, is worse in the toolkit's own values."""
    reference, beta = Reference(np.array([0.05, 0.03, 0.02, 0.6, 0.3]), 3), 0.02

    def errors(name: str) -> tuple[float, float, float]:
        regularizer, certificate = formulas.regularizers[name], maximise(name, reference, beta)
        plus = certificate.solution[:3] / certificate.solution[:3].sum()
        mass = float(regularizer.optimal_mass(reference.q, beta))
        values = []
        for conditional in (reference.plus, np.array([1 - 2e-6, 1e-6, 1e-6])):
            logits = np.log(np.concatenate([mass * conditional, reference.moved_to(min(mass, 1 - 1e-16))[3:]]))
            problem = Problem(np.log(reference.probs), logits, np.arange(5) < 3)
            values.append(float(mass - beta * regularizer.value(problem.policy, problem.reference)))
        wrong = (not abs(values[0] - certificate.value) < TOLERANCE) + (not values[1] < values[0] - beta * 0.1)
        return certificate.worst, float(np.abs(plus - reference.plus).max()), float(wrong)

    certificates, distance, wrong = worst_of_each(("forward_kl", "reverse_kl"), errors)
    return [
        Evidence("convex program", f"beta = {beta}: residuals and gap", certificates, TOLERANCE),
        Evidence("convex program", f"beta = {beta}: largest distance of pi+ from ref+", distance, 1e-4),
        Evidence("float64", "a collapsed policy of the same correctness is worse by beta / 10", wrong, 0),
    ]
