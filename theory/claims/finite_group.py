"""Appendix B: what finite groups of verified rollouts do to CoKL's gradient in expectation, and the recovery term."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import mpmath
import sympy
import torch
from mpmath import mp, mpf
from scipy.stats import binom
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, surrogate_loss
from cokl.policy import expectation
from theory import formulas
from theory.claim import BEYOND, Effort, Evidence, claim, largest, proved, worst_of_each, worst_over
from theory.claims.decomposition import EXACT
from theory.claims.gap import LOG_BETA, shares
from theory.claims.objective import tanh_network
from theory.finite_group import Bandit, all_groups, expected_surrogate_gradient, random_bandit
from theory.provers.arithmetic import Interval, Intervals
from theory.provers.intervals import prove_positive

ENUMERATED = 1e-10
"""Of sums in float64 over all pairs of groups, for their roundings."""
SHAPES = [(3, 1, 2), (3, 2, 3), (4, 2, 3), (5, 2, 2), (3, 1, 4)]  # actions, correct actions, G


def _conditional_scores(bandit: Bandit) -> list[Tensor]:
    """mu_ref+ and mu_theta+ (Appendix B), (A,) each: conditional means of the current policy's score."""
    plus = (logits.masked_fill(~bandit.correct, -math.inf).softmax(-1) for logits in (bandit.reference, bandit.current))
    scores = torch.eye(len(bandit.current), dtype=torch.float64) - bandit.policy(bandit.current).probs
    return [conditional @ scores for conditional in plus]


def bandits() -> list[tuple[Bandit, int]]:
    """A random problem of each shape, on-policy, and its G."""
    return [(random_bandit(seed, actions, correct), size) for seed, (actions, correct, size) in enumerate(SHAPES)]


def distance(a: Tensor, b: Tensor) -> float:
    """Of the entries that are furthest apart."""
    return float((a - b).abs().max())


def _enumerated(name: str, expected: Callable[[Bandit, int], Tensor], filtered=True) -> Evidence:
    def error(case: tuple[Bandit, int]) -> float:
        return distance(expected_surrogate_gradient(formulas.regularizers[name], *case, filtered), expected(*case))

    pairs = sum(actions ** (2 * size) for actions, _, size in SHAPES)
    domain = f"A from 3 to 5, G from 2 to 4: {pairs} pairs of groups"
    return Evidence("enumeration", domain, worst_over(bandits(), error), ENUMERATED)


def _mass(bandit: Bandit) -> float:
    return float(bandit.policy(bandit.current).mass)


@claim("finite-group-gradient", "Eq. appb-finite-gradient", place="Appendix B")
def finite_gradient(effort: Effort) -> list[Evidence]:
    """on-policy, E[grad L_on] = -mu_ref+ + [1 - (1 - Z)^G] mu_theta+, for a reference group that holds a correct
    response"""

    def expected(bandit: Bandit, size: int) -> Tensor:
        reference, current = _conditional_scores(bandit)
        return -reference + formulas.positive_count_probability(math, _mass(bandit), size) * current

    return [_enumerated("cokl", expected)]


@claim(
    "finite-group-gradient-recovery-form",
    "Eqs. appb-finite-gradient-decomposition, appb-recovery-gradient",
    place="Appendix B",
)
def recovery_form(effort: Effort) -> list[Evidence]:
    """on-policy, with reference groups that hold a correct response, E[grad L_on] = grad CoKL - (1 - Z)^G grad log Z =
    grad [CoKL + R_G(Z)]"""

    def direct(bandit: Bandit, size: int) -> Tensor:
        policy, reference = bandit.policy(bandit.current), bandit.policy(bandit.reference)
        missed = float(formulas.zero_correct_probability(_mass(bandit), size))
        return (
            formulas.regularizers["cokl"].logit_gradient(policy, reference) - missed * policy.log_mass_logit_gradient()
        )

    def potential(bandit: Bandit, size: int) -> Tensor:
        policy, reference = bandit.policy(bandit.current), bandit.policy(bandit.reference)
        slope = float(formulas.recovery_derivative(_mass(bandit), size))
        return formulas.regularizers["cokl"].logit_gradient(policy, reference) + slope * policy.mass_logit_gradient()

    return [_enumerated("cokl", direct), _enumerated("cokl", potential)]


@claim("zero-correct-probability", "Eq. appb-positive-count-probability", place="Appendix B")
def zero_correct(effort: Effort) -> list[Evidence]:
    """K ~ Binomial(G, Z), so Pr(K > 0) = 1 - (1 - Z)^G"""

    def error(case: tuple[Bandit, int]) -> float:
        bandit, size = case
        groups, probs = all_groups(bandit.current, size)
        counts = torch.bincount(bandit.correct[groups].sum(-1), probs, minlength=size + 1)
        some, mass = float(counts[1:].sum()), _mass(bandit)
        return largest(
            distance(counts, torch.from_numpy(binom.pmf(range(size + 1), size, mass))),
            abs(some - formulas.positive_count_probability(math, mass, size)),
            abs(1 - some - float(formulas.zero_correct_probability(mass, size))),
        )

    return [Evidence("enumeration", f"{len(SHAPES)} bandits, all groups", worst_over(bandits(), error), ENUMERATED)]


@claim(
    "conditional-weights-mean", "Eqs. appb-conditional-current-score, appb-expected-reference-score", place="Appendix B"
)
def conditional_weights(effort: Effort) -> list[Evidence]:
    """E[sum delta s | K > 0] = mu_theta+ and E[sum alpha s | K_ref > 0] = mu_ref+"""

    def error(case: tuple[Bandit, int]) -> float:
        bandit, size = case
        scores = torch.eye(len(bandit.current), dtype=torch.float64) - bandit.current.softmax(-1)

        def mean_score(logits: Tensor, weigh: Callable[[ResponseGroups], Tensor]) -> Tensor:
            groups, probs = all_groups(logits, size)
            held = bandit.correct[groups].any(-1)
            given = (probs[held, None] * weigh(bandit.responses(groups))[held]).ravel() / probs[held].sum()
            return torch.zeros_like(logits).index_add_(0, groups[held].ravel(), given) @ scores

        reference, current = _conditional_scores(bandit)
        return largest(
            distance(mean_score(bandit.reference, formulas.reference_weights), reference),
            distance(mean_score(bandit.current, lambda groups: formulas.rollout_weights(groups, 0.2)), current),
        )

    return [Evidence("enumeration", f"{len(SHAPES)} bandits, all groups", worst_over(bandits(), error), ENUMERATED)]


@claim("recovery-series", "Eq. appb-recovery-term", place="Appendix B")
def recovery_series(effort: Effort) -> list[Evidence]:
    """R_G(Z) = sum_{m > G} (1 - Z)^m / m = -log Z - sum_{m <= G} (1 - Z)^m / m, and the toolkit's R_G is that

    The tail is summed as x^(G+1) / (G + 1) 2F1(1, G + 1; G + 2; x), which mpmath evaluates independently."""

    def errors(point: tuple[int, float]) -> tuple[mpf, mpf]:
        size, z = point
        x = 1 - mpf(z)
        with mp.workdps(60):
            tail = x ** (size + 1) / (size + 1) * mpmath.hyp2f1(1, size + 1, size + 2, x)
        with mp.workdps(60 + int(-size * math.log10(float(x)))):
            closed = formulas.recovery_closed_form(mp, 1 - (1 - mpf(z)), size)
        computed = mpf(float(formulas.recovery(z, size)))
        return abs(closed / tail - 1), abs(computed / tail - 1) if tail > 1e-290 else mpf(0)

    sizes = [size for size in (1, 2, 3, 8, 16, 64, 256, 1024) if size <= effort.largest_group]
    exact, measured = worst_of_each(product(sizes, (1e-6, 1e-3, 0.02, 0.3, 0.7, 0.97, 1 - 1e-3)), errors)
    domain = f"Z from 1e-6 to 0.999, G to {sizes[-1]}"
    return [
        Evidence("50 digits", domain, exact, EXACT),
        Evidence("float64 against 50 digits", domain, measured, 1e-12),
    ]


@claim("recovery-derivative", "Eq. appb-recovery-derivative", place="Appendix B")
def recovery_derivative(effort: Effort) -> list[Evidence]:
    """R_G'(Z) = -(1 - Z)^G / Z"""
    z = sympy.symbols("z", positive=True)
    wrong = 0
    for size in range(1, 13):
        slope = sympy.diff(formulas.recovery_closed_form(sympy, z, size), z)
        wrong += sympy.cancel(slope - formulas.recovery_slope(sympy, z, size)) != 0
    count = sympy.Symbol("G", positive=True, integer=True)
    step = formulas.recovery_slope(sympy, z, count + 1) - formulas.recovery_slope(sympy, z, count) - (1 - z) ** count
    wrong += sympy.simplify(step) != 0  # what the closed form's next term adds, so that G = 1 gives every G

    def error(point: tuple[int, float]) -> mpf:
        size, mass = point
        exact = formulas.recovery_slope(mp, mpf(mass), size)
        return 0 if abs(exact) <= 1e-290 else abs(mpf(float(formulas.recovery_derivative(mass, size))) / exact - 1)

    worst = worst_over(product((1, 8, 64, effort.largest_group), (1e-6, 1e-3, 0.3, 0.9)), error)
    return [
        Evidence("symbolic", "G from 1 to 12 and the step from G to G + 1, all Z", float(wrong), 0),
        Evidence("float64 against 50 digits", f"Z in [1e-6, 0.9], G to {effort.largest_group}", worst, 1e-12),
    ]


@claim("recovery-decreasing", "Eq. appb-recovery-properties", place="Appendix B")
def recovery_decreasing(effort: Effort) -> list[Evidence]:
    """R_G'(Z) < 0 for 0 < Z < 1, so R_G >= 0 with equality at Z = 1 alone

    R_G(1) = 0 and R_G' < 0 before it. The boxes take G as a real number; (1 - Z)^G enters through its logarithm,
    bounded away from 0 on every box."""

    def negated(logit_z: Interval, log_size: Interval) -> Interval:
        return -formulas.recovery_slope(Intervals, shares(logit_z)[0], Intervals.exp(log_size))

    proof = prove_positive(negated, [(-13.82, 13.82), (0.0, math.log(1024))], effort.boxes)
    sizes = range(1, effort.largest_group + 1)
    wrong = 0
    for size in sizes:
        previous = math.inf
        for mass in (1e-6, 0.1, 0.5, 0.9, 1 - 1e-9):
            value = float(formulas.recovery(mass, size))
            representable = (1 - mass) ** (size + 1) / (size + 1) > 1e-300  # a lower bound of R_G
            wrong += not (0 < value < previous if representable else 0 <= value <= previous)
            previous = value
    at_one = worst_over(sizes, lambda size: abs(float(formulas.recovery(1.0, size))))
    domain = f"every G to {effort.largest_group}: values not positive or not decreasing, and |R_G(1)|"
    return [
        proved("Z in [1e-6, 1 - 1e-6], real G in [1, 1024]", {"-R_G'": proof}),
        Evidence("float64", domain, wrong + at_one, 0),
    ]


@claim("recovery-bounds", "Eq. appb-recovery-limits; the bounds are beyond the paper", "beyond", place="Appendix B")
def recovery_bounds(effort: Effort) -> list[Evidence]:
    """(1 - Z)^(G+1) / (G + 1) <= R_G(Z) <= (1 - Z)^(G+1) / ((G + 1) Z): the rates of R_G -> 0 as Z -> 1 and as G -> inf

    The lower bound is the series' first term; the upper one replaces every 1 / m by 1 / (G + 1). Both differences
    vanish at Z = 1, so their signs follow from their derivatives: d/dZ (R_G - lower) = -(1 - Z)^G (1 / Z - 1) < 0, and
    d/dZ (upper - R_G) = -(1 - Z)^(G+1) / ((G + 1) Z^2) < 0. sympy checks both; the point values are at 50 digits."""
    z, size = sympy.symbols("z G", positive=True)
    slope = formulas.recovery_slope(sympy, z, size)
    above = slope - sympy.diff(formulas.recovery_lower(sympy, z, size), z) + (1 - z) ** size * (1 / z - 1)
    below = sympy.diff(formulas.recovery_upper(sympy, z, size), z) - slope + (1 - z) ** (size + 1) / ((size + 1) * z**2)

    def is_outside(point: tuple[int, mpf]) -> bool:
        count, mass = point
        with mp.workdps(60 + 13 * (count + 1)):
            value = formulas.recovery_closed_form(mp, mass, count)
            return not formulas.recovery_lower(mp, mass, count) < value < formulas.recovery_upper(mp, mass, count)

    masses = mpf("1e-6"), mpf("0.1"), mpf("0.5"), mpf("0.99"), 1 - mpf("1e-12")
    outside = sum(map(is_outside, product((1, 2, 8, 64, effort.largest_group), masses)))
    wrong = sum(sympy.simplify(residual) != 0 for residual in (above, below))
    return [
        Evidence("symbolic", "all Z in (0, 1), real G >= 1", float(wrong), 0),
        Evidence("50 digits", f"Z in [1e-6, 1 - 1e-12], G to {effort.largest_group}", outside, 0, "violations"),
    ]


@claim("recovery-limit-not-uniform", BEYOND, "beyond")
def not_uniform(effort: Effort) -> list[Evidence]:
    """R_G -> 0 only pointwise: R_G(c / G) -> E_1(c), so a policy with Z of order 1 / G never leaves the recovery regime

    R_G(c / G) = int_{c/G}^1 (1 - t)^G / t dt with t = u / G tends to int_c^inf e^-u / u du = E_1(c), and the
    difference is O(1 / G): (1 - u / G)^G = e^-u (1 - u^2 / (2 G) + ...)."""

    def error(point: tuple[float, int]) -> float:
        c, size = point
        return abs(float(formulas.recovery(c / size, size)) - float(mpmath.e1(c))) * size

    worst = worst_over(product((0.1, 0.5, 1.0, 2.0), (64, 1024, 10**5)), error)
    detail = f"R_G(1 / G) -> E_1(1) = {float(mpmath.e1(1)):.4f}"
    return [Evidence("float64 against 50 digits", "c from 0.1 to 2, G to 1e5: G |difference|", worst, 1, detail)]


@claim("finite-group-optimum", "Eqs. appb-finite-objective-derivative, appb-finite-optimum", place="Appendix B")
def finite_optimum(effort: Effort) -> list[Evidence]:
    """dJ_G / dZ = 1 + beta (1 - Z)^G / Z > 0, so finite groups, on-policy and with filtered references, leave the
    optimum at Z = 1, pi+ = ref+"""
    z, beta = sympy.symbols("z beta", positive=True)
    wrong = 0
    for size in range(1, 9):
        slope = sympy.diff(z - beta * formulas.recovery_closed_form(sympy, z, size), z)
        wrong += sympy.simplify(slope - formulas.finite_objective_slope(sympy, z, size, beta)) != 0
    count = sympy.Symbol("G", positive=True)
    by_slope = 1 - beta * formulas.recovery_slope(sympy, z, count)
    wrong += sympy.simplify(by_slope - formulas.finite_objective_slope(sympy, z, count, beta)) != 0

    def margin(logit_z: Interval, log_size: Interval, log_beta: Interval) -> Interval:
        size = Intervals.exp(log_size)
        return formulas.finite_objective_slope(Intervals, shares(logit_z)[0], size, Intervals.exp(log_beta))

    proof = prove_positive(margin, [(-13.82, 13.82), (0.0, math.log(1024)), LOG_BETA], effort.boxes)
    domain = "the slope is that of Z - beta R_G: G from 1 to 8, and by R_G' for all G"
    return [
        Evidence("symbolic", domain, float(wrong), 0),
        proved("Z in [1e-6, 1 - 1e-6], real G in [1, 1024], beta in [1e-3, 1e3]", {"dJ_G/dZ": proof}),
    ]


@claim("finite-group-gradient-on-a-network", "Eqs. appb-finite-gradient, appb-recovery-gradient", place="Appendix B")
def on_a_network(effort: Effort) -> list[Evidence]:
    """the recovery form holds for the parameters of a Tanh network, which its actions share"""
    cokl, generator = formulas.regularizers["cokl"], torch.Generator().manual_seed(41)

    def error(size: int) -> float:
        network, parameters = tanh_network(generator, 4)
        logits = network(torch.randn(6, generator=generator, dtype=torch.float64))
        reference = torch.randn(4, generator=generator, dtype=torch.float64)
        bandit = Bandit(reference, logits.detach(), logits.detach(), torch.arange(4) < 2)
        sampled = expected_surrogate_gradient(cokl, bandit, size)
        of_groups = torch.autograd.grad(logits, parameters, sampled, retain_graph=True)
        policy = bandit.policy(logits)
        slope = float(formulas.recovery_derivative(_mass(bandit), size))
        potential = cokl.value(policy, bandit.policy(reference)) + slope * policy.mass
        exact = torch.autograd.grad(potential, parameters)
        return largest(*map(distance, of_groups, exact))

    worst = worst_over((1, 2, 3, 4), error)
    return [Evidence("enumeration", "6-16-4 networks, G from 1 to 4, all pairs of groups", worst, ENUMERATED)]


@claim("unfiltered-reference-groups", BEYOND, "beyond")
def unfiltered(effort: Effort) -> list[Evidence]:
    """without the buffer's filter, E[grad] = -[1 - (1 - q)^G] mu_ref+ + [1 - (1 - Z)^G] mu_theta+: at pi+ = ref+ it is
    [(1 - q)^G - (1 - Z)^G] grad log Z, which pulls Z to q from both sides

    Zero-correct reference groups weigh alpha = 0 (below Eq. 11), so term 1 carries Pr(K_ref > 0). The one-sided
    recovery of Appendix B is owed to the filter that builds D+, not to the surrogate of Eq. 12 itself."""

    def expected(bandit: Bandit, size: int) -> Tensor:
        reference, current = _conditional_scores(bandit)
        q = float(bandit.policy(bandit.reference).mass)
        held = formulas.positive_count_probability(math, q, size)
        return -held * reference + formulas.positive_count_probability(math, _mass(bandit), size) * current

    def error(shift: float) -> float:
        base = random_bandit(7, 4, 2)
        current = base.reference + shift * base.correct
        bandit = Bandit(base.reference, current, current, base.correct)
        measured = expected_surrogate_gradient(formulas.regularizers["cokl"], bandit, 3, filtered=False)
        q, z = float(bandit.policy(base.reference).mass), _mass(bandit)
        factor = (1 - q) ** 3 - (1 - z) ** 3
        apart = distance(measured, factor * bandit.policy(current).log_mass_logit_gradient())
        return apart + (not factor * (z - q) > 0)

    return [
        _enumerated("cokl", expected, filtered=False),
        Evidence("enumeration", "pi+ = ref+, Z below and above q", worst_over((-1.0, 1.0), error), ENUMERATED),
    ]


@claim("cached-references-are-the-target", BEYOND, "beyond")
def cached(effort: Effort) -> list[Evidence]:
    """with a fixed cached reference group, the expected gradient vanishes at pi+ = alpha, not at pi+ = ref+ (Z -> 1); a
    mode that the cache missed is pushed down

    Appendix B averages over reference groups, but D+ holds one group per prompt for the whole run. Given the cache,
    term 1 is -sum_j alpha_j s(y_j): its stationary pi+ is the cache's empirical distribution, at which ref+ has
    infinite KL whenever the cache missed a correct mode."""
    correct = torch.tensor([True, True, True, False])
    reference = torch.tensor([0.5, 0.0, -0.5, 1.0], dtype=torch.float64)
    cache = torch.tensor([[0, 1, 3, 3]])
    seen = torch.tensor([1 / 2, 1 / 2, 0, 0], dtype=torch.float64)

    def gradient(current: Tensor) -> Tensor:
        groups, probs = all_groups(current, 4)
        logits = current.clone().requires_grad_()
        bandit = Bandit(reference, current, current, correct)
        log_probs = logits.log_softmax(-1)
        streams = [bandit.responses(actions, log_probs) for actions in (cache, groups)]
        alpha, delta = formulas.regularizers["cokl"].surrogate_weights(*streams, SurrogateConfig())
        loss = (alpha * streams[0].log_probs).sum() + (probs[:, None] * delta * streams[1].log_probs).sum()
        return torch.autograd.grad(loss, logits)[0]

    missed = float(gradient(torch.where(correct, reference, -60.0))[2])
    detail = f"at pi+ = ref+ the missed mode's logit has gradient {missed:+.3f}"
    error = float(gradient(seen.log().clamp_min(-60)).abs().max()) + float(not missed > 0)
    return [Evidence("enumeration", "three modes, a cache that saw two", error, ENUMERATED, detail)]


@claim("score-function-surrogates-unbiased", BEYOND, "beyond")
def unbiased(effort: Effort) -> list[Evidence]:
    """on-policy, the sampled surrogates of entropy, forward KL, reverse KL, Jensen-Shannon and replay have
    the exact gradient in expectation

    Forward KL: -1/G over reference draws is -E_ref[s]. Replay: alpha has mean mu_ref+ given
    K_ref > 0. The others are score functions with a leave-one-out baseline, which is independent of its own draw."""
    names = ("entropy", "forward_kl", "reverse_kl", "jensen_shannon", "correct_forward_kl")
    objects = {name: formulas.regularizers[name] for name in names}

    def error(case: tuple[str, tuple[Bandit, int]]) -> float:
        name, (bandit, size) = case
        measured = expected_surrogate_gradient(objects[name], bandit, size, filtered=name == "correct_forward_kl")
        exact = objects[name].logit_gradient(bandit.policy(bandit.current), bandit.policy(bandit.reference))
        return distance(measured, exact)

    worst = worst_over(product(objects, bandits()), error)
    return [Evidence("enumeration", f"{len(objects)} regularizers, {len(SHAPES)} bandits", worst, ENUMERATED)]


@claim("correct-reverse-kl-shrinkage", BEYOND, "beyond")
def shrinkage(effort: Effort) -> list[Evidence]:
    """the sampled correct-only reverse KL has Pr(K > 1) times the exact gradient: groups with one correct response are
    silent

    Given K = k > 1 correct draws from pi+, sum_j (c_j - mean of the others) s_j / k has mean Cov_{pi+}(c, s), the
    gradient of KL(pi+ || ref); for k < 2 the weights are zero."""

    def expected(bandit: Bandit, size: int) -> Tensor:
        policy, reference = bandit.policy(bandit.current), bandit.policy(bandit.reference)
        gradient = formulas.regularizers["correct_reverse_kl"].logit_gradient(policy, reference)
        return formulas.pair_probability(math, _mass(bandit), size) * gradient

    return [_enumerated("correct_reverse_kl", expected)]


@claim("without-term1-finite-group", BEYOND, "beyond")
def without_term1(effort: Effort) -> list[Evidence]:
    """finite groups turn the ablation w/o term 1 into Z - beta (log Z + R_G), convex in Z: its maximum is at Z = 0 for
    beta > 1 / H_G and at Z = 1 for beta < 1 / H_G (1 / H_8 = 0.368; the paper uses beta = 1, G = 8)

    log Z + R_G(Z) = -sum_{m <= G} (1 - Z)^m / m by the closed form of R_G, so J = Z + beta sum (1 - Z)^m / m:
    convex, with J(1) = 1 and J(0) = beta H_G. Its slope is 1 - beta (1 - (1 - Z)^G) / Z = 1 - beta sum_{j < G} (1 -
    Z)^j."""

    def expected(bandit: Bandit, size: int) -> Tensor:
        slope = 1 - formulas.without_term1_finite_slope(math, _mass(bandit), size, 1.0)
        return slope * bandit.policy(bandit.current).mass_logit_gradient()

    z, beta = sympy.symbols("z beta", positive=True)
    wrong = 0
    for size in range(1, 9):
        value = z + beta * sum((1 - z) ** m / sympy.Integer(m) for m in range(1, size + 1))
        wrong += sympy.simplify(sympy.diff(value, z) - formulas.without_term1_finite_slope(sympy, z, size, beta)) != 0
        wrong += sympy.simplify(value.subs({z: 0, beta: formulas.without_term1_threshold(sympy, size)}) - 1) != 0
    convexity = sympy.diff(formulas.without_term1_finite_slope(sympy, z, 8, beta), z) / beta
    wrong += sympy.simplify(convexity - sum(j * (1 - z) ** (j - 1) for j in range(1, 8))) != 0
    curvature = prove_positive(  # J'' / beta = sum_{1 <= j < G} j (1 - Z)^(j - 1)
        lambda logit_z: sum((j * shares(logit_z)[1] ** (j - 1) for j in range(1, 8)), Interval.of(0)),
        [(-13.82, 13.82)],
        effort.boxes,
    )
    threshold = float(formulas.without_term1_threshold(mp, 8))
    return [
        _enumerated("cokl_without_term1", expected),
        Evidence("symbolic", "G from 1 to 8: slope, J(0) = J(1) at the threshold, J'' at G = 8", float(wrong), 0),
        proved(f"G = 8: J'' > 0; threshold {threshold:.4f}", {"convex": curvature}),
    ]


@claim("surrogate-is-linear-in-log-likelihoods", "Eq. 12 (appb-on-policy-loss)", place="Eq. 12")
def linear_surrogate(effort: Effort) -> list[Evidence]:
    """the on-policy surrogate's gradient is the weighted sum of scores; its term 2 has the expected value [1 - (1 -
    Z)^G] (log Z - H(pi+)) and is no estimate of log Z

    Pair by pair: over all groups together, the two streams' scores would cancel whatever their weights."""
    bandit = random_bandit(3, 4, 2)
    policy = bandit.policy(bandit.current)
    groups, probs = all_groups(bandit.current, 3)
    scores = torch.eye(4, dtype=torch.float64) - policy.probs

    def error(pair: tuple[Tensor, ...]) -> float:
        logits = bandit.current.clone().requires_grad_()
        log_probs = logits.log_softmax(-1)
        streams = [bandit.responses(group[None], log_probs) for group in pair]
        weights = formulas.regularizers["cokl"].surrogate_weights(*streams, SurrogateConfig())
        gradient = torch.autograd.grad(surrogate_loss(weights, *streams), logits)[0]
        alpha, delta = (rewards / rewards.sum().clamp_min(1) for rewards in (bandit.correct[g].double() for g in pair))
        return distance(gradient, delta @ scores[pair[1]] - alpha @ scores[pair[0]])

    drawn = bandit.responses(groups)
    delta = formulas.regularizers["cokl"].surrogate_weights(drawn, drawn, SurrogateConfig()).rollout
    value = float(probs @ (delta * drawn.log_probs).sum(-1))
    entropy = -expectation(policy.conditional_probs, policy.conditional_log_probs)
    stated = float((1 - (1 - policy.mass) ** 3) * (policy.log_mass - entropy))
    worst = worst_over(zip(groups.roll(23, 0), groups, strict=True), error)
    detail = f"{value:.3f} nats; log Z is {float(policy.log_mass):.3f}"
    return [
        Evidence("hand enumeration", "4 actions, G = 3: 64 pairs of groups", worst, 1e-12),
        Evidence("enumeration", "all groups: term 2's value", abs(value - stated), ENUMERATED, detail),
    ]
