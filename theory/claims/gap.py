"""Theorem 2 and Appendix D: where full-policy forward and reverse KL put the optimal correctness, step by step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import sympy
from mpmath import mp, mpf
from scipy.special import rel_entr

from theory import formulas
from theory.claim import Effort, Evidence, claim, largest, proved, worst_of_each, worst_over
from theory.claims.symbolic import BETA, DECAY, SIGNS, Q, forms_of_an_optimum, forward_beta, identities, reverse_beta
from theory.formulas import Formula
from theory.provers.arithmetic import Interval, Intervals
from theory.provers.convex import TOLERANCE, Reference, maximise, random_references
from theory.provers.intervals import Proof, prove_positive

LOGIT_Q = (-13.82, 13.82)  # holds q in [1e-6, 1 - 1e-6]
LOG_BETA = (-6.91, 6.91)  # holds beta in [1e-3, 1e3]
DOMAIN = "q in [1e-6, 1 - 1e-6], beta in [1e-3, 1e3]"
INTERIOR = (-16.0, 16.0)  # logit of a position inside an open interval: within 1.2e-7 of either end


def shares(logit: Interval) -> tuple[Interval, Interval]:
    """Intervals of s = sigmoid(logit) and 1 - s, both without cancellation."""
    return 1 / (1 + Intervals.exp(-logit)), 1 / (1 + Intervals.exp(logit))


def parameter_grid(count: int) -> list[tuple[mpf, mpf]]:
    """(q, beta) pairs over the domain of the interval proofs, ends and both sides of beta = 1 included, as floats."""
    per_axis = max(int(count**0.5), 4)
    logits = np.linspace(*LOGIT_Q, per_axis)
    betas = np.concatenate([10 ** np.linspace(-3, 3, per_axis), [1 - 1e-9, 1.0, 1 + 1e-9]])
    masses = (1 / (1 + np.exp(-logits))).clip(1e-6, 1 - 1e-6)
    return [(mpf(float(q)), mpf(float(beta))) for q in masses for beta in betas]


def over(function: Callable[..., Interval], effort: Effort, *axes: tuple[float, float]) -> Proof:
    """Prove function(q, p, *others) > 0 over all q, and the others on their axes."""
    return prove_positive(lambda logit_q, *rest: function(*shares(logit_q), *rest), [LOGIT_Q, *axes], effort.boxes)


def over_domain(function: Callable[[Interval, Interval, Interval], Interval], effort: Effort) -> Proof:
    """Prove function(q, p, beta) > 0 over the whole domain."""
    return over(lambda q, p, log_beta: function(q, p, Intervals.exp(log_beta)), effort, LOG_BETA)


def program_errors(
    name: str, reference: Reference, beta: float, claimed: np.ndarray, value: float
) -> tuple[float, float, float]:
    """Of a convex program: its certificate's worst figure, and how far its maximum is from `value` and its solution
    from `claimed`, (A,) or the first of its entries."""
    certificate = maximise(name, reference, beta)
    apart = np.abs(certificate.solution[: len(claimed)] - claimed).max()
    return certificate.worst, abs(certificate.value - value), float(apart)


def against_programs(
    name: str, claim_at: Callable[[Reference, float], tuple[np.ndarray, float]], effort: Effort, seed: int
) -> Evidence:
    """A closed form against convex programs: the objective's value at its policy, and the policy (A,) itself.

    claim_at: that policy and that value, for a reference and a beta.
    """
    certificates, shortfall, distance = worst_of_each(
        random_references(seed, effort.programs), lambda case: program_errors(name, *case, *claim_at(*case))
    )
    domain = f"{effort.programs} references of 3 to 40 actions, beta in [0.02, 20]"
    detail = f"residuals and gap at most {certificates:.1e}; policies within {distance:.1e}"
    return Evidence("convex program", domain, largest(certificates, shortfall), TOLERANCE, detail)


def _certified(name: str, optimum: Formula, effort: Effort) -> Evidence:
    def claim_at(reference: Reference, beta: float) -> tuple[np.ndarray, float]:
        mass = float(optimum(mp, mpf(reference.q), mpf(beta)))
        claimed = reference.moved_to(mass)
        pair = (reference.probs, claimed) if name == "forward_kl" else (claimed, reference.probs)
        return claimed, mass - beta * float(rel_entr(*pair).sum())

    return against_programs(name, claim_at, effort, 31)


@claim("forward-kl-optimum", "Theorem 2, forward KL")
def forward_optimum(effort: Effort) -> list[Evidence]:
    """the global maximizer of Z - beta KL(ref || pi) has pi+ = ref+, pi- = ref- and Z = Z*_FKL

    Symbolically: put beta = h(z). Then (beta - 1)^2 + 4 beta q is ((z - q)^2 + q (1 - q))^2 / (z - q)^2, a square,
    and the closed form returns z."""
    z, q = sympy.symbols("z q", positive=True)
    beta = formulas.forward_kl_coefficient(sympy, z, q)
    discriminant = sympy.factor((2 * formulas.forward_kl_optimum(sympy, q, beta) - (1 - beta)) ** 2)
    square = (((z - q) ** 2 + q * (1 - q)) / (z - q)) ** 2
    root = (1 - beta + ((z - q) ** 2 + q * (1 - q)) / (z - q)) / 2
    wrong = (sympy.simplify(discriminant - square) != 0) + (sympy.simplify(root - z) != 0)
    return [
        _certified("forward_kl", formulas.forward_kl_optimum, effort),
        Evidence("symbolic", "0 < q < z < 1: Z*_FKL(h(z)) = z", float(wrong), 0),
    ]


@claim("reverse-kl-optimum", "Theorem 2, reverse KL")
def reverse_optimum(effort: Effort) -> list[Evidence]:
    """the global maximizer of Z - beta KL(pi || ref) has pi+ = ref+, pi- = ref- and Z = Z*_RKL"""
    slope = formulas.reverse_kl_slope(sympy, formulas.reverse_kl_optimum(sympy, Q, reverse_beta()), Q, reverse_beta())
    return [
        _certified("reverse_kl", formulas.reverse_kl_optimum, effort),
        identities("q in (0, 1), beta > 0", {"the slope at Z*": sympy.simplify(slope)}),
    ]


@claim("full-kl-derivatives", "Appendix D")
def derivatives(effort: Effort) -> list[Evidence]:
    """f', f'' (forward) and g', g'' (reverse) as stated"""

    def divergence(a, b):
        return a * sympy.log(a / b) + (1 - a) * sympy.log((1 - a) / (1 - b))

    z, q, beta = sympy.symbols("z q beta", positive=True)
    evidence = []
    for name, value, slope, curvature in (
        ("forward", z - beta * divergence(q, z), formulas.forward_kl_slope, formulas.forward_kl_curvature),
        ("reverse", z - beta * divergence(z, q), formulas.reverse_kl_slope, formulas.reverse_kl_curvature),
    ):
        residuals = {
            f"{name} first derivative": sympy.diff(value, z) - slope(sympy, z, q, beta),
            f"{name} second derivative": sympy.diff(value, z, 2) - curvature(sympy, z, 1 - z, q, 1 - q, beta),
        }
        evidence.append(identities("all z and q in (0, 1), beta > 0", residuals))
    return evidence


@claim("full-kl-strict-concavity", "Appendix D")
def strict_concavity(effort: Effort) -> list[Evidence]:
    """f'' < 0 and g'' < 0 on (0, 1), so each has one stationary point"""

    def negative(curvature: Formula) -> Proof:
        def negated(logit_z: Interval, logit_q: Interval, log_beta: Interval) -> Interval:
            return -curvature(Intervals, *shares(logit_z), *shares(logit_q), Intervals.exp(log_beta))

        return prove_positive(negated, [INTERIOR, LOGIT_Q, LOG_BETA], effort.boxes)

    proofs = {"f''": negative(formulas.forward_kl_curvature), "g''": negative(formulas.reverse_kl_curvature)}
    return [proved(f"{DOMAIN}, z within 1.2e-7 of 0 and 1", proofs)]


@claim("forward-kl-unique-root", "Appendix D")
def unique_root(effort: Effort) -> list[Evidence]:
    """the stationarity quadratic has roots of product -beta q < 0, so exactly one is positive; f'(q) = 1 > 0 and f' ->
    -inf at 1 put it into (q, 1)"""
    z, q, beta = sympy.symbols("z q beta", positive=True)
    root = formulas.forward_kl_optimum(sympy, q, beta)
    conjugate = 1 - beta - root
    product = sympy.expand(root * conjugate) - formulas.forward_kl_root_product(sympy, q, beta)
    at_q = formulas.forward_kl_slope(sympy, q, q, beta) - 1
    at_one = sympy.cancel((1 - z) * formulas.forward_kl_slope(sympy, z, q, beta)).subs(z, 1) + beta * (1 - q)
    negative = over_domain(lambda q, p, beta: -formulas.forward_kl_root_product(Intervals, q, beta), effort)
    return [
        identities(
            "q in (0, 1), beta > 0",
            {"product": product, "f'(q) = 1": at_q, "(1 - z) f' -> -beta (1 - q) < 0 at z = 1": at_one},
        ),
        proved(DOMAIN, {"product < 0": negative}),
    ]


@claim("forward-kl-coefficient", "Appendix D")
def coefficient(effort: Effort) -> list[Evidence]:
    """beta = h(z) inverts Z*_FKL, with h'(z) as stated and h' < 0 on (q, 1)"""
    z, q = sympy.symbols("z q", positive=True)
    slope = formulas.forward_kl_coefficient_slope
    residual = sympy.simplify(
        sympy.diff(formulas.forward_kl_coefficient(sympy, z, q), z) - slope(sympy, z - q, q, 1 - q)
    )
    proof = over(lambda q, p, place: -slope(Intervals, p * shares(place)[0], q, p), effort, INTERIOR)
    return [
        Evidence("symbolic", "h' is the derivative of h", float(residual != 0), 0),
        proved("q in [1e-6, 1 - 1e-6], z within 1.2e-7 (1 - q) of q and 1", {"h' < 0": proof}),
    ]


def _forms() -> Evidence:
    """The forms of Z* - q and 1 - Z* without cancellation, which the boxes use, are those of the closed forms."""
    forward = formulas.forward_kl_optimum, formulas.forward_kl_excess, formulas.forward_kl_gap
    reverse = formulas.reverse_kl_optimum, formulas.reverse_kl_excess, formulas.reverse_kl_gap
    residuals = forms_of_an_optimum("forward", *forward) | forms_of_an_optimum("reverse", *reverse)
    return identities("q in (0, 1), beta > 0", residuals)


@claim("full-kl-gap", "Theorem 2")
def gap(effort: Effort) -> list[Evidence]:
    """q < Z*_FKL < 1 and q < Z*_RKL < 1

    The closed forms cancel in Z* - q and 1 - Z*; the boxes use `forward_kl_excess` and its siblings, which do not
    and which are those differences by algebra."""
    positive = {
        "Z*_FKL > q": formulas.forward_kl_excess,
        "Z*_FKL < 1": formulas.forward_kl_gap,
        "Z*_RKL > q": formulas.reverse_kl_excess,
        "Z*_RKL < 1": formulas.reverse_kl_gap,
    }
    proofs = {name: over_domain(partial(formula, Intervals), effort) for name, formula in positive.items()}
    return [_forms(), proved(DOMAIN, proofs)]


def _reverse_slope(effort: Effort) -> tuple[sympy.Expr, Proof]:
    """dZ*_RKL / dbeta minus its stated form, with exp(-1 / beta) as a symbol of its own, and a proof that it is < 0."""

    def negated(q: Interval, p: Interval, beta: Interval) -> Interval:
        excess, gap = formulas.reverse_kl_excess(Intervals, q, p, beta), formulas.reverse_kl_gap(Intervals, q, p, beta)
        return -formulas.reverse_kl_optimum_slope(Intervals, q + excess, gap, beta)

    z = formulas.reverse_kl_optimum(sympy, Q, BETA)
    residual = sympy.diff(z, BETA) - formulas.reverse_kl_optimum_slope(sympy, z, 1 - z, BETA)
    return residual.subs(BETA, reverse_beta()), over_domain(negated, effort)


@claim("full-kl-monotone", "Theorem 2")
def monotone(effort: Effort) -> list[Evidence]:
    """Z*_FKL and Z*_RKL are strictly decreasing in beta"""
    slope = formulas.forward_kl_optimum_slope
    derivative = sympy.diff(formulas.forward_kl_optimum(sympy, Q, BETA), BETA)
    residuals = {}
    for sign in SIGNS:
        beta = forward_beta(sign)
        where = "linear < 0" if sign.is_negative else "linear >= 0"
        residuals[f"dZ*_FKL / dbeta ({where})"] = derivative.subs(BETA, beta) - slope(sympy, Q, 1 - Q, beta)
    residuals["dZ*_RKL / dbeta"], reverse = _reverse_slope(effort)
    forward = over_domain(lambda q, p, beta: -slope(Intervals, q, p, beta), effort)
    return [
        identities("q in (0, 1), beta > 0", residuals),
        _forms(),
        proved(DOMAIN, {"forward": forward, "reverse": reverse}),
    ]


@claim("reverse-kl-optimum-slope", "Appendix D")
def reverse_slope(effort: Effort) -> list[Evidence]:
    """dZ*_RKL / dbeta = -Z* (1 - Z*) / beta^2 < 0"""
    residual, proof = _reverse_slope(effort)
    return [
        identities("q in (0, 1), beta > 0", {"dZ*_RKL / dbeta": residual}),
        _forms(),
        proved(DOMAIN, {"slope < 0": proof}),
    ]


@claim(
    "full-kl-limit-large-beta", "Theorem 2, limits; the rates are beyond the paper", "beyond", place="Theorem 2, limits"
)
def large_beta(effort: Effort) -> list[Evidence]:
    """Z* -> q as beta -> inf, with 0 < Z* - q <= 2 q (1 - q) / beta for both directions and beta >= 1000

    With t = 1 / beta. Forward: the rate (Z* - q) / (q p t) is 2 / (1 + t (q - p) + sqrt(...)). Reverse: the excess
    is q p (1 - e^-t) / (q + p e^-t) with 0 <= 1 - e^-t <= t (t - 1 + e^-t vanishes at 0 and has slope 1 - e^-t), so its
    rate is at most 1 / (q + p e^-t). The box t in [0, 1e-3] holds beta = inf: it is the whole tail beyond 1e3."""
    forward, reverse = formulas.forward_kl_excess_rate, formulas.reverse_kl_gap_rate
    optima = formulas.forward_kl_optimum, formulas.reverse_kl_optimum

    def error(point: tuple[mpf, mpf]) -> mpf:
        q, beta = point
        return largest(*(abs((z(mp, q, beta) - q) / (q * (1 - q) / beta) - 1) * beta / 1000 for z in optima))

    grid = [(q, mpf(10) ** k) for q, _ in parameter_grid(effort.samples) for k in range(3, 31, 3)]
    tail = (0.0, 1e-3)
    proofs = {
        "forward": over(lambda q, p, t: 2 - forward(Intervals, q, p, t), effort, tail),
        "forward > 0": over(partial(forward, Intervals), effort, tail),
        "reverse": over(lambda q, p, t: 2 - reverse(Intervals, q, p, Intervals.exp(-t)), effort, tail),
    }
    product, excess = Q * (1 - Q), (optima[0](sympy, Q, BETA) - Q, optima[1](sympy, Q, reverse_beta()) - Q)
    residuals = {
        "forward rate": forward(sympy, Q, 1 - Q, 1 / BETA) * product / BETA - excess[0],
        "reverse rate": reverse(sympy, Q, 1 - Q, DECAY) * product * (1 - DECAY) - excess[1],
    }
    return [
        Evidence("50 digits", "beta from 1e3 to 1e30: rate within 1000 / beta of 1", worst_over(grid, error), 1),
        identities("q in (0, 1), beta > 0", residuals),
        proved("q in [1e-6, 1 - 1e-6], beta in [1e3, inf]", proofs),
    ]


@claim(
    "full-kl-limit-small-beta", "Theorem 2, limits; the rates are beyond the paper", "beyond", place="Theorem 2, limits"
)
def small_beta(effort: Effort) -> list[Evidence]:
    """Z* -> 1 as beta -> 0, with 1 - Z* <= 2 beta (1 - q) (forward) and <= 2 (1 - q) / q exp(-1 / beta) (reverse) for
    beta <= 1/1000

    The rates (1 - Z*) / (beta p) and (1 - Z*) exp(1 / beta) / p are continuous at beta = 0; for reverse KL the
    variable is exp(-1 / beta) itself. The boxes hold the limit."""
    forward, reverse = formulas.forward_kl_gap_rate, formulas.reverse_kl_gap_rate
    gaps = 1 - formulas.forward_kl_optimum(sympy, Q, BETA), 1 - formulas.reverse_kl_optimum(sympy, Q, reverse_beta())
    residuals = {
        "forward rate": forward(sympy, Q, 1 - Q, BETA) * BETA * (1 - Q) - gaps[0],
        "reverse rate": reverse(sympy, Q, 1 - Q, DECAY) * DECAY * (1 - Q) - gaps[1],
    }
    proofs = {
        "forward": over(lambda q, p, beta: 2 - forward(Intervals, q, p, beta), effort, (0.0, 1e-3)),
        "reverse": over(lambda q, p, decay: 2 - q * reverse(Intervals, q, p, decay), effort, (0.0, 1e-30)),
    }
    return [
        identities("q in (0, 1), beta > 0", residuals),
        proved("q in [1e-6, 1 - 1e-6], beta in [0, 1e-3]", proofs),
    ]
