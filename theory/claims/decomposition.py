"""Eqs. 5-7 and Appendix A: the correctness decomposition, its boundary cases and its mirror image of Appendix D."""

from __future__ import annotations

import math
from itertools import product

import mpmath
import sympy
import torch
from mpmath import mp, mpf

from cokl.policy import CorrectSet, Policy
from theory import formulas
from theory.claim import Effort, Evidence, claim, largest, proved, worst_of_each, worst_over
from theory.definitions import ExactPolicy, Problem, kl, random_problems
from theory.provers.arithmetic import Intervals
from theory.provers.intervals import prove_positive

EXACT = 1e-45  # rounding of 50 digits, over sums of a few dozen terms


def _relative(measured: float | mpf, exact: mpf) -> float:
    return float(abs(mpf(measured) - exact) / max(abs(exact), mpf("1e-300")))


def _parts(source: ExactPolicy, target: ExactPolicy) -> tuple[mpf, mpf, mpf]:
    """The right-hand side of Eq. 7 at 50 digits: the Bernoulli term and the two weighted conditional terms."""
    return (
        formulas.bernoulli_kl(mp, source.mass, target.mass),
        source.mass * kl(source.plus, target.plus),
        (1 - source.mass) * kl(source.minus, target.minus),
    )


@claim("correctness-parameterization", "Eqs. 5-6, Appendix C")
def parameterization(effort: Effort) -> list[Evidence]:
    """(Z, pi+, pi-) determines pi: z p+ on correct and (1 - z) p- on incorrect actions gives pi back"""

    def error(problem: Problem) -> float:
        policy, exact = problem.policy, problem.exact_policy
        rebuilt = policy.correct.add_to(torch.zeros_like(policy.logits), policy.mass * policy.conditional_probs)
        values = torch.where(policy.correct.mask, rebuilt, policy.probs)
        stated = [exact.mass * a + (1 - exact.mass) * b for a, b in zip(exact.plus, exact.minus, strict=True)]
        return largest(_relative(float(policy.mass), exact.mass), *map(_relative, values.tolist(), stated))

    worst = worst_over(random_problems(1, effort.samples), error)
    return [Evidence("float64 against 50 digits", f"{effort.samples} random policies, 3 to 24 actions", worst, 1e-12)]


def _decomposition(effort: Effort, forward: bool) -> list[Evidence]:
    def errors(problem: Problem) -> tuple[float, float]:
        exact_pair = problem.exact_reference, problem.exact_policy
        pair = problem.reference, problem.policy
        source, target = exact_pair if forward else exact_pair[::-1]
        parts = _parts(source, target)
        full = kl(source.probs, target.probs)
        measured = formulas.decompose_kl(*(pair if forward else pair[::-1]))
        distances = [abs(mpf(float(value)) - part) / max(1, full) for value, part in zip(measured, parts, strict=True)]
        return _relative(mpmath.fsum(parts), full), float(largest(*distances))

    identity, float_error = worst_of_each(random_problems(2, effort.samples), errors)
    domain = f"{effort.samples} random pairs, logits spread up to 30"
    return [
        Evidence("50 digits", domain, identity, EXACT),
        Evidence("float64 against 50 digits", domain, float_error, 1e-12, "each summand, relative to max(1, KL)"),
    ]


@claim("forward-decomposition", "Eq. 7, Appendix A (app-final-decomposition)", place="Eq. 7, Appendix A")
def forward_decomposition(effort: Effort) -> list[Evidence]:
    """KL(ref || pi) = KL(Bern(q) || Bern(Z)) + q KL(ref+ || pi+) + (1 - q) KL(ref- || pi-)"""
    evidence = _decomposition(effort, forward=True)
    q, z, a, b, c, d = sympy.symbols("q z a b c d", positive=True)
    reference = [q * a, q * (1 - a), (1 - q) * b, (1 - q) * (1 - b)]
    policy = [z * c, z * (1 - c), (1 - z) * d, (1 - z) * (1 - d)]

    def divergence(source, target):
        return sum(x * (sympy.log(x) - sympy.log(y)) for x, y in zip(source, target, strict=True))

    parts = (
        formulas.bernoulli_kl(sympy, q, z)
        + q * divergence([a, 1 - a], [c, 1 - c])
        + (1 - q) * divergence([b, 1 - b], [d, 1 - d])
    )
    residual = sympy.simplify(sympy.expand(sympy.expand_log(divergence(reference, policy) - parts, force=True)))
    evidence.append(Evidence("symbolic", "two correct and two incorrect actions, all values", float(residual != 0), 0))
    return evidence


@claim("reverse-decomposition", "Appendix D, full reverse KL")
def reverse_decomposition(effort: Effort) -> list[Evidence]:
    """KL(pi || ref) = KL(Bern(Z) || Bern(q)) + Z KL(pi+ || ref+) + (1 - Z) KL(pi- || ref-)"""
    return _decomposition(effort, forward=False)


@claim("decomposition-by-response-set", "Eqs. app-positive-part, app-negative-part", place="Appendix A")
def by_response_set(effort: Effort) -> list[Evidence]:
    """the correct (incorrect) responses contribute q log(q / Z) + q KL(ref+ || pi+), and likewise for 1 - q"""

    def error(problem: Problem) -> mpf:
        reference, policy = problem.exact_reference, problem.exact_policy
        measured = formulas.decompose_kl(problem.reference, problem.policy)
        distances = []
        for flag, q, z, part in (
            (True, reference.mass, policy.mass, measured.correct),
            (False, 1 - reference.mass, 1 - policy.mass, measured.incorrect),
        ):
            contribution = mpmath.fsum(
                a * mpmath.log(a / b)
                for a, b, correct in zip(reference.probs, policy.probs, reference.correct, strict=True)
                if correct == flag
            )
            distances.append(abs(contribution - q * mpmath.log(q / z) - mpf(float(part))))
        return largest(*distances) / max(1, kl(reference.probs, policy.probs))

    worst = worst_over(random_problems(3, effort.samples), error)
    return [Evidence("float64 against 50 digits", f"{effort.samples} random pairs", worst, 1e-12)]


@claim(
    "bernoulli-term-nonnegative",
    "Eq. app-bernoulli-kl; the quantitative form is beyond the paper",
    "beyond",
    place="Appendix A",
)
def bernoulli_nonnegative(effort: Effort) -> list[Evidence]:
    """KL(Bern(a) || Bern(b)) >= 2 (a - b)^2 >= 0, so every summand of Eq. 7 is nonnegative

    Pinsker for two outcomes. With b fixed, KL - 2 (a - b)^2 vanishes with its derivative at a = b, and its second
    derivative 1 / (a (1 - a)) - 4 = (1 - 2 a)^2 / (a (1 - a)) is nonnegative. The two symbolic facts prove it; the
    boxes prove KL > 0 away from the diagonal without them."""
    a, b = sympy.symbols("a b", positive=True)
    divergence = formulas.bernoulli_kl(sympy, a, b)
    difference = divergence - 2 * (a - b) ** 2
    at_diagonal = [sympy.simplify(sympy.diff(difference, a, order).subs(a, b)) for order in (0, 1)]
    curvature = sympy.simplify(sympy.diff(difference, a, 2) - (1 - 2 * a) ** 2 / (a * (1 - a)))
    symbolic = float(at_diagonal != [0, 0] or curvature != 0)
    apart = {
        side: prove_positive(lambda a, b: formulas.bernoulli_kl(Intervals, a, b), [first, second], effort.boxes)
        for side, first, second in (("a < b", (1e-6, 0.45), (0.5, 1 - 1e-6)), ("a > b", (0.5, 1 - 1e-6), (1e-6, 0.45)))
    }
    return [
        Evidence("symbolic", "all a, b in (0, 1)", symbolic, 0),
        proved("a and b on two sides of [0.45, 0.5]", apart),
    ]


@claim("decomposition-boundaries", "Appendix A, boundary cases")
def boundaries(effort: Effort) -> list[Evidence]:
    """at Z = 0 or 1 the extended-value convention holds: a side that the source visits and the target leaves gives
    +inf, one that the source never visits gives 0"""
    correct = CorrectSet.from_mask(torch.tensor([True, True, False, False]))
    inner = Policy(torch.tensor([0.3, -1.0, 0.5, 2.0], dtype=torch.float64), correct)
    certain = Policy(torch.tensor([0.3, -1.0, -math.inf, -math.inf], dtype=torch.float64), correct)
    hopeless = Policy(torch.tensor([-math.inf, -math.inf, 0.5, 2.0], dtype=torch.float64), correct)
    wrong = 0
    for boundary in (certain, hopeless):
        away, towards = formulas.decompose_kl(inner, boundary), formulas.decompose_kl(boundary, inner)
        full = float((boundary.probs * (boundary.probs / inner.probs).clamp_min(1e-300).log()).sum())
        unvisited = towards.incorrect if boundary is certain else towards.correct
        wrong += not math.isinf(float(away.total))
        wrong += not abs(float(towards.total) - full) < 1e-12
        wrong += float(unvisited) != 0
        wrong += any(math.isnan(float(part)) for part in (*away, *towards))
    return [Evidence("float64", "Z = 0 and Z = 1, both directions", wrong, 0, "violations counted")]


@claim(
    "decomposition-boundary-rates",
    "Appendix A, boundary cases; the rates are beyond the paper",
    "beyond",
    place="Appendix A, boundary cases",
)
def boundary_rates(effort: Effort) -> list[Evidence]:
    """KL(Bern(q) || Bern(z)) + q log z -> -H(q) as z -> 0, and + (1 - q) log(1 - z) -> -H(q) as z -> 1: the mass term
    diverges logarithmically; the mirror image stays bounded, -> -log(1 - q) and -log q

    From app-bernoulli-kl: the remainders are (1 - q) log(1 - z) and z log(z / q) - z log((1 - z) / (1 - q)) + ...,
    each at most 2 z |log z| for z <= q <= 1/2, and symmetrically at 1."""

    def error(point: tuple[int, str]) -> mpf:
        z, q = mpf(10) ** -point[0], mpf(point[1])
        entropy = -(q * mpmath.log(q) + (1 - q) * mpmath.log(1 - q))
        remainders = (
            formulas.bernoulli_kl(mp, q, z) + q * mpmath.log(z) + entropy,
            formulas.bernoulli_kl(mp, q, 1 - z) + (1 - q) * mpmath.log(z) + entropy,
            formulas.bernoulli_kl(mp, z, q) + mpmath.log(1 - q),
            formulas.bernoulli_kl(mp, 1 - z, 1 - q) + mpmath.log(1 - q),
        )
        bound = 2 * z * (abs(mpmath.log(z)) + abs(mpmath.log(q)) + abs(mpmath.log(1 - q)) + 1)
        return largest(*map(abs, remainders)) / bound

    worst = worst_over(product(range(3, 41), ("1e-2", "0.3", "0.5", "0.9")), error)
    return [Evidence("50 digits", "z and 1 - z from 1e-3 to 1e-40", worst, 1, "remainder over its bound")]
