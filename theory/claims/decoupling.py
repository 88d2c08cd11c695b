"""Theorem 1, clause by clause: what CoKL's objective depends on, and where its maximum is."""

from __future__ import annotations

from itertools import product

import numpy as np
from mpmath import mpf
from scipy.special import rel_entr

from theory import formulas
from theory.claim import BEYOND, Effort, Evidence, claim, largest, proved, worst_of_each
from theory.claims.decomposition import EXACT
from theory.claims.gap import program_errors
from theory.definitions import ExactPolicy, Problem, kl, random_problems
from theory.provers.arithmetic import Interval, Intervals
from theory.provers.convex import CONDITIONAL_PENALTIES, TOLERANCE, Reference, maximise, random_references
from theory.provers.intervals import prove_positive


def objective(policy: ExactPolicy, reference: ExactPolicy, beta: mpf) -> mpf:
    """J_CoKL = Z - beta KL(ref+ || pi+) (Theorem 1), from its definition."""
    return policy.mass - beta * kl(reference.plus, policy.plus)


def _assembled(mass: mpf, plus: list[mpf], minus: list[mpf], correct: tuple[bool, ...]) -> ExactPolicy:
    return ExactPolicy(tuple(mass * a + (1 - mass) * b for a, b in zip(plus, minus, strict=True)), correct)


def _value(policy: ExactPolicy, reference: Problem) -> float:
    """The toolkit's CoKL for a policy given at 50 digits."""
    logits = np.log(np.array([float(prob) for prob in policy.probs]))
    problem = Problem(reference.reference_logits, logits, reference.correct)
    return float(formulas.regularizers["cokl"].value(problem.policy, problem.reference))


@claim("cokl-ignores-incorrect-conditional", "Theorem 1, clause 1")
def ignores_incorrect(effort: Effort) -> list[Evidence]:
    """J_CoKL depends on pi only through Z and pi+: replacing pi- by any other distribution changes nothing"""
    rng = np.random.default_rng(21)
    exact_error, float_error = 0.0, 0.0
    for problem in random_problems(21, effort.samples):
        policy, reference = problem.exact_policy, problem.exact_reference
        wrong = np.where(problem.correct, 0, rng.dirichlet(np.ones(len(problem.correct))))
        minus = [mpf(float(x)) / mpf(float(wrong.sum())) for x in wrong]
        other = _assembled(policy.mass, policy.plus, minus, policy.correct)
        change = objective(other, reference, mpf(1)) - objective(policy, reference, mpf(1))
        exact_error = largest(exact_error, float(abs(change)))
        penalty = kl(reference.plus, other.plus)
        if all(float(prob) > 0 for prob in other.probs):
            difference = _value(other, problem) - float(penalty)
            float_error = largest(float_error, abs(difference) / float(max(1, penalty)))
    domain = f"{effort.samples} random policies and replacements of pi-"
    return [Evidence("50 digits", domain, exact_error, EXACT), Evidence("float64", domain, float_error, 1e-12)]


@claim("cokl-exact-difference", "Theorem 1, clause 2")
def exact_difference(effort: Effort) -> list[Evidence]:
    """for pi1+ = pi2+ and Z2 > Z1, J(pi2) - J(pi1) = Z2 - Z1 > 0, whatever pi1- and pi2- are (KL(ref+ || pi+)
    finite)"""
    rng = np.random.default_rng(22)
    exact_error, float_error = 0.0, 0.0
    for problem in random_problems(22, effort.samples):
        policy, reference = problem.exact_policy, problem.exact_reference
        low, high = sorted(mpf(x) for x in rng.uniform(0.01, 0.99, size=2))
        beta = mpf(10) ** mpf(rng.uniform(-3, 3))
        first = _assembled(low, policy.plus, policy.minus, policy.correct)
        second = _assembled(high, policy.plus, reference.minus, policy.correct)
        change = objective(second, reference, beta) - objective(first, reference, beta)
        exact_error = largest(exact_error, float(abs(change - (high - low)) / beta))
        if all(float(prob) > 0 for prob in (*first.probs, *second.probs)):
            values = _value(first, problem), _value(second, problem)
            float_error = largest(float_error, abs(values[0] - values[1]) / max(1.0, values[0]))
    return [
        Evidence("50 digits", f"{effort.samples} pairs, beta in [1e-3, 1e3]", exact_error, EXACT),
        Evidence("float64", f"{effort.samples} pairs: the penalties agree", float_error, 1e-12),
    ]


@claim("cokl-maximum", "Theorem 1, clause 3")
def maximum(effort: Effort) -> list[Evidence]:
    """max J_CoKL = 1 over the policies with Z > 0, attained at Z = 1, pi+ = ref+"""

    def errors(case: tuple[Reference, float]) -> tuple[float, float, float]:
        reference, beta = case
        mass, plus = 1, reference.plus
        attained = mass - beta * float(rel_entr(reference.plus, plus).sum())
        figures, shortfall, distance = program_errors("cokl", *case, np.array([mass, *plus]), attained)
        claimed = float(formulas.regularizers["cokl"].optimal_mass(reference.q, beta))
        return figures, largest(shortfall, abs(attained - 1), abs(claimed - 1)), distance

    worst, shortfall, distance = worst_of_each(random_references(23, effort.programs), errors)
    domain = f"{effort.programs} references of 3 to 40 actions, in (Z, pi+), where the problem is convex"
    detail = f"residuals and gap at most {worst:.1e}; solution within {distance:.1e}"
    return [Evidence("convex program", domain, largest(worst, shortfall), TOLERANCE, detail)]


@claim(
    "cokl-unique-maximizer",
    "Theorem 1, clause 3; the quantitative form is beyond the paper",
    "beyond",
    place="Theorem 1, clause 3",
)
def unique_maximizer(effort: Effort) -> list[Evidence]:
    """every maximizer has Z = 1 and pi+ = ref+; quantitatively, J >= 1 - e forces 1 - Z <= e and TV(ref+, pi+)^2 <= e /
    (2 beta)

    1 - J = (1 - Z) + beta KL(ref+ || pi+), both summands nonnegative, so each is at most e; Pinsker's inequality
    KL >= 2 TV^2 does the rest. The boxes prove Pinsker's inequality strictly for two correct actions, away from a = b.
    """

    def errors(case: tuple[Problem, mpf]) -> tuple[mpf, float]:
        problem, beta = case
        policy, reference = problem.exact_policy, problem.exact_reference
        penalty = float(formulas.regularizers["cokl"].value(problem.policy, problem.reference))
        shortfall = 1 - objective(policy, reference, beta)
        variation = sum(abs(a - b) for a, b in zip(reference.plus, policy.plus, strict=True)) / 2
        computed = float(problem.policy.log_incorrect_mass.exp()) + float(beta) * penalty
        parts = (1 - policy.mass) / shortfall, 2 * beta * variation**2 / shortfall
        return largest(*parts), float(2 * beta * variation**2) / computed

    def margin(b: Interval, apart: Interval) -> Interval:
        return formulas.bernoulli_kl(Intervals, b + apart, b) - 2 * apart**2

    cases = product(random_problems(25, effort.samples), (mpf("1e-3"), mpf(1), mpf("1e3")))
    worst, measured = worst_of_each(cases, errors)
    proof = prove_positive(margin, [(1e-3, 0.6), (0.3, 0.39)], effort.boxes)
    return [
        Evidence("50 digits", f"{effort.samples} random pairs, three beta", worst, 1, "largest part of 1 - J"),
        Evidence("float64", "2 beta TV^2 over the toolkit's 1 - J", measured, 1 + 1e-9),
        proved("two correct actions, shares 0.3 to 0.39 apart", {"margin": proof}),
    ]


@claim("conditional-penalties-decouple", BEYOND, "beyond")
def conditional_penalties(effort: Effort) -> list[Evidence]:
    """a penalty D(pi+) >= 0 that is 0 at ref+ alone has CoKL's maximizer over the simplex, Z = 1 and pi+ = ref+, also
    with beta' log Z, beta' >= 0, added to the objective; the maximum is 1 minus beta times what constant is added to D
    (0 in replay, -log q in correct-only reverse KL)

    J = Z - beta D(pi+) + beta' log Z <= 1 with equality iff Z = 1 and D(pi+) = 0; a constant added to D moves the
    maximum and not the maximizer. So Theorem 1's maximizer does not distinguish CoKL from correct-only replay; only its
    first two clauses do."""

    def errors(case: tuple[str, tuple[Reference, float]]) -> tuple[float, float]:
        name, (reference, beta) = case
        certificate = maximise(name, reference, beta)
        claimed = float(formulas.regularizers[name].optimal_mass(reference.q, beta))
        constant = -np.log(reference.q) if name == "correct_reverse_kl" else 0.0
        solution = certificate.solution
        if name in CONDITIONAL_PENALTIES:
            solution = solution[0] * solution[1:]
        apart = np.abs(solution[: reference.correct] - reference.plus).max()
        return largest(certificate.worst, abs(certificate.value - (claimed - beta * constant))), float(apart)

    names = ("correct_reverse_kl", "correct_forward_kl")
    worst, distance = worst_of_each(product(names, random_references(26, effort.programs)), errors)
    return [
        Evidence("convex program", f"two regularizers, {effort.programs} references each", worst, TOLERANCE),
        Evidence("convex program", "their solutions against Z = 1, pi+ = ref+", distance, 1e-4),
    ]
