"""Beyond the paper: the population optimum of every other registered regularizer, and f-divergences in general."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import sympy
import torch
from mpmath import mp, mpf
from scipy.special import rel_entr
from torch import Tensor

from cokl.groups import ResponseGroups
from cokl.policy import CorrectSet, Policy
from theory.claim import BEYOND, Effort, Evidence, claim, largest, proved, worst_of_each, worst_over
from theory.claims.decomposition import EXACT
from theory.claims.finite_group import distance
from theory.claims.gap import (
    DOMAIN,
    against_programs,
    over,
    over_domain,
    parameter_grid,
    program_errors,
    shares,
    stationary,
)
from theory.claims.symbolic import DECAY, Q, forms_of_an_optimum, identities
from theory.definitions import Problem, random_problems
from theory.divergences import F_DIVERGENCES
from theory.formulas import Formulas
from theory.numeric.tabular import tabular_reference, train_tabular
from theory.provers.arithmetic import Interval, Intervals
from theory.provers.convex import TOLERANCE, Reference, maximise, random_references
from theory.provers.intervals import prove_positive


def _certified(
    name: str, policy_at: Callable[[Reference, float], np.ndarray], penalty: Callable, effort: Effort, seed: int
) -> Evidence:
    def claim_at(reference: Reference, beta: float) -> tuple[np.ndarray, float]:
        claimed = policy_at(reference, beta)
        return claimed, claimed[: reference.correct].sum() - beta * penalty(claimed, reference)

    return against_programs(name, claim_at, effort, seed)


@claim("entropy-optimum", BEYOND)
def entropy_optimum(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """Z - beta (-H) is largest at Z* = sigmoid(logit c + 1 / beta), c = correct actions / actions, uniform within both
    sets; q does not enter, and the conditional KL to the reference stays

    Gibbs: the maximizer of E[r] + beta H is proportional to exp(r / beta), so the odds of correctness are
    c / (1 - c) exp(1 / beta). Equivalently -H = KL(pi || uniform) - log A, reverse KL with a uniform reference."""

    def policy_at(reference: Reference, beta: float) -> np.ndarray:
        right, wrong = reference.correct, len(reference.probs) - reference.correct
        mass = float(formulas.entropy_optimum(mp, mpf(right) / (right + wrong), mpf(beta)))
        return np.repeat([mass / right, (1 - mass) / wrong], [right, wrong])

    return [_certified("entropy", policy_at, lambda policy, _: float(rel_entr(policy, 1).sum()), effort, 51)]


@claim("entropy-below-reference", BEYOND)
def entropy_below(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """the entropy optimum lies below q exactly if c < q and beta > 1 / (logit q - logit c); the gap is always there

    With lead = logit q - logit c and beta = factor times the threshold, logit q - logit Z* is lead (1 - 1 / factor)
    by algebra. The boxes prove that the odds of q over those of Z*, minus 1, have the factor's sign."""

    def margin(lead: Interval, log_factor: Interval, sign: int) -> Interval:
        factor = Intervals.exp(log_factor * sign)  # beta over its threshold 1 / lead
        return sign * (Intervals.exp(lead * (1 - 1 / factor)) - 1)  # odds of q over odds of Z*, minus 1

    def error(case: tuple[tuple[mpf, mpf], str]) -> mpf:
        (q, _), fraction = case[0], mpf(case[1])
        threshold = formulas.below_reference_threshold(mp, q, fraction)
        return abs(formulas.entropy_optimum(mp, fraction, threshold) / q - 1) if fraction < q else mpf(0)

    worst = worst_over(product(parameter_grid(effort.samples), ("1e-4", "0.06", "0.5")), error)
    box = [(0.1, 20.0), (0.01, 5.0)]
    proofs = {
        f"{where} the threshold": prove_positive(partial(margin, sign=sign), box, effort.boxes)
        for where, sign in (("above", 1), ("below", -1))
    }
    c, factor = sympy.symbols("c factor", positive=True)
    z = formulas.entropy_optimum(sympy, c, factor * formulas.below_reference_threshold(sympy, Q, c))
    lead = sympy.log(Q) - sympy.log(1 - Q) - sympy.log(c) + sympy.log(1 - c)
    residual = sympy.log(Q) - sympy.log(1 - Q) + sympy.log(1 / z - 1) - lead * (1 - 1 / factor)
    return [
        Evidence("50 digits", "Z* = q at the threshold", worst, EXACT),
        identities("c and q in (0, 1), beta > 0", {"logit q - logit Z*": residual}),
        proved("logit q - logit c in [0.1, 20], beta 1% to e^5 beyond the threshold", proofs),
    ]


def _jensen_shannon(policy: np.ndarray, reference: Reference) -> float:
    mixture = (policy + reference.probs) / 2
    return float(rel_entr(policy, mixture).sum() + rel_entr(reference.probs, mixture).sum()) / 2


@claim("jensen-shannon-optimum", BEYOND)
def jensen_shannon_optimum(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """Z*_JS is the positive root of (1 - e) z^2 + (e - (1 - q)(1 - e)) z - q, e = exp(-2 / beta); conditionals stay

    The general statement of `theory.divergences`: log[z / (z + q)] - log[(1 - z) / (2 - z - q)] = 2 / beta; clearing
    the logarithms gives the quadratic."""
    optimum, slope = formulas.jensen_shannon_optimum, formulas.jensen_shannon_slope

    def policy_at(reference: Reference, beta: float) -> np.ndarray:
        return reference.moved_to(float(optimum(mp, mpf(reference.q), mpf(beta))))

    z, q, beta = sympy.symbols("z q beta", positive=True)
    divergence = (
        z * sympy.log(2 * z / (z + q))
        + (1 - z) * sympy.log(2 * (1 - z) / (2 - z - q))
        + q * sympy.log(2 * q / (z + q))
        + (1 - q) * sympy.log(2 * (1 - q) / (2 - z - q))
    ) / 2
    residual = sympy.diff(z - beta * divergence, z) - slope(sympy, z, q, beta)
    with mp.workdps(1000):
        error = stationary(slope, optimum, effort)
    return [
        _certified("jensen_shannon", policy_at, _jensen_shannon, effort, 52),
        identities("all z and q in (0, 1), beta > 0", {"the slope of z - beta JS": residual}),
        Evidence("50 digits", f"{DOMAIN}: the slope changes sign within 1e-48 of Z*", error, 0),
    ]


@claim("jensen-shannon-gap", BEYOND)
def jensen_shannon_gap(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """q < Z*_JS < 1 for every beta, with 1 - Z*_JS <= 2 (1 - q) exp(-2 / beta) / (1 - e)

    As for reverse KL, the gap closes exponentially: JS is bounded, but its slope at pi- = 0 is not. With u = 1 - e,
    1 - Z* = 2 p e / (1 + u q + sqrt(...)), whose denominator is above 1 >= u."""
    optimum, excess, gap = formulas.jensen_shannon_optimum, formulas.jensen_shannon_excess, formulas.jensen_shannon_gap
    proofs = {
        name: over_domain(partial(formula, Intervals), effort)
        for name, formula in (("Z* > q", excess), ("Z* < 1", gap))
    }
    forms = forms_of_an_optimum("Jensen-Shannon", optimum, excess, gap)
    unit, beta = 1 - DECAY, -2 / sympy.log(DECAY)
    denominator = 1 + unit * Q + sympy.sqrt((DECAY - (1 - Q) * unit) ** 2 + 4 * unit * Q)
    forms["1 - Z* = 2 p e / (1 + u q + root)"] = 1 - optimum(sympy, Q, beta) - 2 * (1 - Q) * DECAY / denominator
    return [identities("q in (0, 1), beta > 0", forms), proved(DOMAIN, proofs)]


@claim("jensen-shannon-monotone", BEYOND)
def jensen_shannon_monotone(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """Z*_JS is strictly decreasing in beta, with limits 1 and q

    L(z) = log[z / (z + q)] - log[(1 - z) / (2 - z - q)] has L' = q / (z (z + q)) + (1 - q) / ((1 - z)(2 - z - q)) >
    0 and 2 / beta = L(Z*), so Z* decreases. The boxes prove L' > 0."""

    def slope(z, y, q, p):
        return q / (z * (z + q)) + p / (y * (y + p))

    z, q = sympy.symbols("z q", positive=True)
    balance = sympy.log(z / (z + q)) - sympy.log((1 - z) / (2 - z - q))
    of_balance = slope(z, 1 - z, q, 1 - q)
    residual = sympy.simplify(sympy.diff(balance, z) - of_balance)
    stated = sympy.simplify(sympy.diff(formulas.jensen_shannon_slope(sympy, z, q, 2), z) + of_balance)
    proof = over(lambda q, p, logit_z: slope(*shares(logit_z), q, p), effort, (-30.0, 30.0))

    def error(point: tuple[mpf, mpf]) -> mpf:
        far, near = (formulas.jensen_shannon_optimum(mp, point[0], beta) for beta in (mpf(10) ** 12, mpf("0.01")))
        return largest(abs(far - point[0]) * 10**11, (1 - near) * mpf(10) ** 70)

    limits = worst_over(parameter_grid(effort.samples), error)
    return [
        Evidence("symbolic", "L' as stated", float((residual != 0) + (stated != 0)), 0),
        proved("q in [1e-6, 1 - 1e-6], z within 1e-13 of 0 and 1", {"L' > 0": proof}),
        Evidence("50 digits", "|Z* - q| <= 1e-11 at beta = 1e12, 1 - Z* <= 1e-70 at beta = 0.01", limits, 1),
    ]


@claim("restricted-reverse-kl-optimum", BEYOND)
def restricted_optimum(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """restricted correct-only reverse KL has pi+ = ref+ and Z* = min(1, q exp(1 / beta - 1))

    The penalty is Z log(Z / q) + Z KL(pi+ || ref+): the second term is least at ref+, and z - beta z log(z / q) is
    concave with slope 1 - beta (log(z / q) + 1). pi- is free."""
    optimum = formulas.restricted_reverse_kl_optimum

    def policy_at(reference: Reference, beta: float) -> np.ndarray:
        return min(1.0, float(optimum(mp, mpf(reference.q), mpf(beta)))) * reference.plus

    def penalty(claimed: np.ndarray, reference: Reference) -> float:
        return float(rel_entr(claimed, reference.probs[: reference.correct]).sum())

    z, q, beta = sympy.symbols("z q beta", positive=True)
    slope = sympy.diff(z - beta * z * sympy.log(z / q), z).subs(z, optimum(sympy, q, beta))
    residual = sympy.simplify(sympy.expand_log(slope, force=True))
    return [
        _certified("restricted_reverse_kl", policy_at, penalty, effort, 53),
        Evidence("symbolic", "the slope vanishes there", float(residual != 0), 0),
    ]


@claim("restricted-reverse-kl-regimes", BEYOND)
def restricted_regimes(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """restricted reverse KL has a gap exactly for beta > 1 / (1 - log q); it is below q (to q / e) exactly for beta > 1

    log(Z* / q) = 1 / beta - 1 changes sign at beta = 1; Z* reaches 1 at 1 / beta = 1 - log q."""
    optimum, threshold = formulas.restricted_reverse_kl_optimum, formulas.restricted_reverse_kl_threshold

    def below(q: Interval, _: Interval, log_beta: Interval) -> Interval:
        return 1 - optimum(Intervals, q, Intervals.exp(log_beta)) / q

    def gap(logit_q: Interval, log_factor: Interval, sign: int) -> Interval:
        q, _ = shares(logit_q)
        beta = threshold(Intervals, q) * Intervals.exp(sign * log_factor)
        return -sign * Intervals.log(optimum(Intervals, q, beta))

    box = [(-13.82, 10.0), (0.05, 5.0)]
    proofs = {
        "Z* < q for beta > 1": over(below, effort, (0.02, 6.91)),
        "Z* > q for beta < 1": over(lambda *arguments: -below(*arguments), effort, (-6.91, -0.02)),
        "gap above the threshold": prove_positive(partial(gap, sign=1), box, effort.boxes),
        "none below it": prove_positive(partial(gap, sign=-1), box, effort.boxes),
    }
    at_threshold = sympy.log(optimum(sympy, Q, threshold(sympy, Q)))
    limit = abs(optimum(mp, mpf("0.3"), mpf(10) ** 60) / (mpf("0.3") / mp.e) - 1)
    return [
        proved("q in [1e-6, 1 - 1e-6], beta 2% (5% for the gap) beyond each threshold", proofs),
        identities("q in (0, 1)", {"Z* = 1 at the threshold": at_threshold}),
        Evidence("50 digits", "Z* -> q / e", float(limit), 1e-45),
    ]


@claim("without-term1-unbounded", BEYOND)
def without_term1_unbounded(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """Z - beta log Z has no maximum: it is unbounded as Z -> 0 for every beta > 0, and convex, with a local maximum at
    Z = 1 exactly for beta < 1 (the valley is at Z = beta)"""
    z, beta = sympy.symbols("z beta", positive=True)
    objective = z - beta * sympy.log(z)
    wrong = (
        (sympy.limit(objective.subs(beta, sympy.Rational(1, 7)), z, 0, "+") != sympy.oo)
        + (sympy.simplify(sympy.diff(objective, z, 2) - beta / z**2) != 0)
        + (sympy.solve(sympy.diff(objective, z), z) != [beta])
    )
    correct = CorrectSet.from_mask(torch.tensor([True, True, False]))

    def error(depth: float) -> float:
        policy, uniform = (Policy(torch.tensor([low, low, 0.0], dtype=torch.float64), correct) for low in (-depth, 0.0))
        value = float(formulas.regularizers["cokl_without_term1"].value(policy, uniform))
        return abs(value - (np.log(2) - depth - np.log1p(2 * np.exp(-depth)))) / depth

    return [
        Evidence("symbolic", "all beta > 0", float(wrong), 0),
        Evidence("float64", "Z down to 1e-304: value log Z", worst_over((10.0, 100.0, 700.0), error), 1e-12),
    ]


def floor_gate(q: Tensor, mass: Tensor) -> Tensor:
    """g of Eq. 19, as it is claimed, for the reference's correctness q and the policy's."""
    return (q - mass).clamp_min(0)


def floor_maximizer(reference: Policy) -> tuple[Tensor, Tensor]:
    """Z* and log pi+ (K,) over the K correct actions, as they are claimed for CoKL with the floor."""
    return torch.ones((), dtype=torch.float64), reference.conditional_log_probs


@claim("floor-keeps-the-optimum", "Eqs. 19-20; the optimum is beyond the paper")
def floor_optimum(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """CoKL + floor has Z* = 1, pi+ = ref+: the gate is 0 for Z >= q, and below q the floor only adds upward pressure

    With the gate's gradient stopped, the field is grad Z - beta grad CoKL + lambda g q (ref+ - pi) in the logits.
    Along Z (conditionals fixed) its component is 1 + lambda g q / Z > 0, so no point with Z < 1 is stationary. The
    component is the pairing with the direction r - Z, whose logit gradient of log Z is pi+ - pi. At pi+ = ref+ the
    field vanishes as Z -> 1."""

    def errors(problem: Problem) -> tuple[float, float]:
        policy, reference = problem.policy, problem.reference
        expected = floor_gate(reference.mass, policy.mass) * policy.correct.add_to(
            -policy.probs * reference.mass, reference.correct_probs
        )
        best = _floor_optimum(reference)
        field = best.mass_logit_gradient() - formulas.regularizers["cokl"].logit_gradient(best, reference)
        field = field + _floor_pull(formulas, best, reference)
        return distance(_floor_pull(formulas, policy, reference), expected), float(field.abs().max())

    def violations(problem: Problem) -> int:
        policy, reference = problem.policy, problem.reference
        gate = floor_gate(reference.mass, policy.mass)
        pull = float(_floor_pull(formulas, policy, reference)[policy.correct.mask].sum())  # all correct logits together
        least = float(gate * reference.mass * (1 - policy.mass)) - 1e-12
        return (not pull >= 0) + (not pull >= least) if gate else 0

    problems = random_problems(55, effort.samples)
    value_error, stationary_error = worst_of_each(problems, errors)
    wrong = sum(map(violations, problems))
    sampled = _sampled_floor_error(formulas, effort)
    return [
        Evidence("float64", f"{effort.samples} random pairs: field against Eq. 20", value_error, 1e-12),
        Evidence("loops", "sampled weights of batches on both sides of the gate: -g r / G", sampled, 1e-15),
        Evidence("float64", "downward pulls on Z, and shortfall from g q (1 - Z)", wrong, 0),
        Evidence("float64", "the field at 1 - Z = 1e-13, pi+ = ref+, beta = lambda = 1", stationary_error, 1e-12),
    ]


def _floor_pull(formulas: Formulas, policy: Policy, reference: Policy) -> Tensor:
    """(A,): the floor's descent direction in the logits of a batch of one context."""
    correct = CorrectSet.from_mask(policy.correct.mask[None])
    batch = Policy(policy.logits[None], correct), Policy(reference.logits[None], correct)
    return -formulas.floor_logit_gradient(*batch)[0]


def _floor_optimum(reference: Policy) -> Policy:
    """The policy at the claimed maximizer, but with 1 - Z at least 1e-13, and the reference's pi-."""
    mass, log_plus = floor_maximizer(reference)
    incorrect_mass = (1 - mass).clamp_min(1e-13)
    log_probs = reference.log_probs - reference.log_incorrect_mass + incorrect_mass.log()
    log_probs[reference.correct.actions] = log_plus + torch.log1p(-incorrect_mass)
    return Policy(log_probs, reference.correct)


def _sampled_floor_error(formulas: Formulas, effort: Effort) -> float:
    """The sampled floor's weights against Eqs. 19-20 as loops over batches of 3 prompts with groups of 4."""
    generator = torch.Generator().manual_seed(60)

    def error(index: int) -> float:
        correct = [(torch.rand(3, 4, generator=generator) < (0.8, 0.2)[(index + side) % 2]).double() for side in (0, 1)]
        streams = [ResponseGroups(torch.zeros(3, 4, dtype=torch.float64), rewards) for rewards in correct]
        weights = formulas.sampled_floor_weights(*streams)
        means = [sum(sum(row) / 4 for row in rewards.tolist()) / 3 for rewards in correct]
        gate = means[0] - means[1] if means[0] > means[1] else 0.0
        cells = zip(weights.reference.flatten().tolist(), correct[0].flatten().tolist(), strict=True)
        return largest(
            float(weights.rollout is not None), *(abs(weight + gate * reward / 4) for weight, reward in cells)
        )

    return worst_over(range(max(effort.samples // 4, 6)), error)


@claim("floor-is-not-a-mass-constraint", BEYOND)
def floor_not_mass(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """L_floor = g q [KL(ref+ || pi+) - log Z + H(ref+)]: below the floor it anchors pi+ as CoKL does, not Z alone; with
    the gate's gradient stopped it is the gradient of no function

    The reference responses' cross-entropy is the replay term of Eq. 9. The field g(Z) q (pi - ref+) has a symmetric
    Jacobian only if grad g is parallel to pi - ref+, that is where pi+ = ref+."""
    asymmetries = []

    def error(problem: Problem) -> float:
        correct = CorrectSet.from_mask(torch.from_numpy(problem.correct)[None])
        reference = Policy(torch.from_numpy(problem.reference_logits / 10)[None], correct)
        low = torch.from_numpy(problem.reference_logits / 10 + problem.policy_logits / 30 - 3.0 * problem.correct)

        def field(logits: Tensor) -> Tensor:
            return formulas.floor_logit_gradient(Policy(logits[None], correct), reference)[0]

        policy = Policy(low[None], correct)
        gate = max(float(reference.mass - policy.mass), 0)
        replay = formulas.regularizers["cokl"].value(policy, reference) - policy.log_mass
        entropy = -(reference.conditional_probs * reference.conditional_log_probs).sum(-1)
        if gate and len(reference.correct.actions[0]) > 1:
            steps = 1e-6 * torch.eye(len(low)).double()
            jacobian = torch.stack([(field(low + step) - field(low - step)) / 2e-6 for step in steps], -1)
            asymmetries.append(float((jacobian - jacobian.T).abs().max() / jacobian.abs().max()))
        return abs(float(formulas.floor_value(policy, reference)) - gate * float(reference.mass * (replay + entropy)))

    worst = worst_over(random_problems(56, max(effort.samples // 8, 4), actions=(4, 8)), error)
    wrong = float(not asymmetries) + sum(not asymmetry >= 1e-5 for asymmetry in asymmetries)
    detail = f"{len(asymmetries)} fields, each by at least {min(asymmetries, default=0):.1e}"
    return [
        Evidence("float64", "random pairs below the floor: the split", worst, 1e-12),
        Evidence("finite differences", "asymmetry of the field's Jacobian", wrong, 0, detail),
    ]


@claim("f-divergence-statement", BEYOND)
def f_divergences(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """with f convex and differentiable, a maximizer of Z - beta D_f with the reference's conditionals has Z* = 1, or Z*
    >= q solves f'(z / q) - f'((1 - z) / (1 - q)) = 1 / beta; Z* < 1 exactly for beta > 1 / (f'(1 / q) - f'(0+)), which
    is for every beta iff f'(0+) = -inf

    Proof in the docstring of `theory.divergences`; checked on eight generators."""
    count = max(effort.programs // 2, 2)
    drawn = random_references(57, count)

    def errors(case: tuple[str, tuple[Reference, float]]) -> tuple[float, float, float]:
        name, (reference, beta) = case
        divergence = in_programs[name]
        with mp.workdps(25):
            z = divergence.optimum(mpf(reference.q), mpf(beta))
            claimed = reference.moved_to(min(float(z), 1 - 1e-16))  # f may be infinite at 0
            pairs = zip(map(mpf, claimed), map(mpf, reference.probs), strict=True)
            penalty = mp.fsum(prob * divergence.generator(mp, moved / prob) for moved, prob in pairs)
        value = claimed[: reference.correct].sum() - beta * float(penalty)
        return program_errors(name, reference, beta, claimed, value)

    def closed(point: tuple[str, str]) -> mpf:
        q, beta = map(mpf, point)
        stated = {
            "forward KL": formulas.forward_kl_optimum(mp, q, beta),
            "reverse KL": formulas.reverse_kl_optimum(mp, q, beta),
            "Jensen-Shannon": formulas.jensen_shannon_optimum(mp, q, beta),
            "Pearson chi^2": min(1, q + q * (1 - q) / (2 * beta)),
        }
        roots = {divergence.name: divergence.optimum(q, beta) for divergence in F_DIVERGENCES}
        return largest(*(abs(roots[name] - z) for name, z in stated.items()))

    in_programs = {one.convex_program: one for one in F_DIVERGENCES if one.convex_program}
    certificates, shortfall, distance = worst_of_each(product(in_programs, drawn), errors)
    with mp.workdps(30):
        worst = worst_over(product(("0.01", "0.4", "0.95"), ("0.2", "1", "30")), closed)
    detail = f"residuals and gap at most {certificates:.1e}; policies within {distance:.1e}"
    domain = f"six generators, {count} references each"
    return [
        Evidence("convex program", domain, largest(certificates, shortfall), TOLERANCE, detail),
        Evidence("high precision", "four closed forms against the general root", worst, 1e-25),
    ]


@claim("f-divergence-gap-threshold", BEYOND)
def gap_threshold(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """Pearson chi^2 (f'(0+) = -2) has no gap up to beta = q / 2; total variation (a kink at 1) keeps Z* = q for beta >
    1 and has Z* = 1 for beta < 1

    Pearson: 1 / (f'(1 / q) - f'(0+)) = 1 / (2 (1 / q - 1) + 2) = q / 2. Total variation: d(z) = |z - q|, so the
    slope above q is 1 - beta."""
    pearson = next(divergence for divergence in F_DIVERGENCES if divergence.name == "Pearson chi^2")
    general = pearson.gap_threshold(sympy, Q) - formulas.pearson_gap_threshold(sympy, Q)
    claimed = {  # the threshold in q, and Z* at 1.25 times it
        "pearson_chi_squared": (formulas.pearson_gap_threshold, lambda q, at: q + q * (1 - q) / (2.5 * at)),
        "total_variation": (formulas.total_variation_gap_threshold, lambda q, _: q),
    }

    def errors(case: tuple[tuple[Reference, float], str, float]) -> tuple[float, float]:
        (reference, _), name, factor = case
        threshold, above = claimed[name]
        at = float(threshold(mp, mpf(reference.q)))
        certificate = maximise(name, reference, factor * at)
        reached = float(certificate.solution[: reference.correct].sum())
        return certificate.worst, abs(reached - (1.0 if factor < 1 else above(reference.q, at)))

    drawn = random_references(58, max(effort.programs // 2, 2))
    worst, distance = worst_of_each(product(drawn, claimed, (0.8, 1.25)), errors)
    return [
        identities("q in (0, 1)", {"Pearson's threshold from the general one": general}),
        Evidence("convex program", "20% below and 25% above each threshold", worst, TOLERANCE),
        Evidence("convex program", "Z of the certified solutions", distance, 1e-4, "from gaps of 1e-8 by curvature"),
    ]


OPTIMAL_MASS: dict[str, Callable[[float, float], bool]] = {
    **dict.fromkeys(("cokl", "correct_forward_kl", "correct_reverse_kl", "cokl_without_term2"), lambda z, q: z == 1),
    **dict.fromkeys(("forward_kl", "reverse_kl", "jensen_shannon"), lambda z, q: q < z < 1),
    "cokl_without_term1": lambda z, q: z == 0,
    "entropy": lambda z, q: z < 1,
}
"""What is claimed of Z*, given Z* and q, at every q and beta: for each registered regularizer."""


@claim("regularizers-with-a-gap", BEYOND)
def with_a_gap(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """forward KL, reverse KL, JS and entropy have Z* < 1 for every q and beta; CoKL, correct-only KLs (the reverse one
    read as KL(pi+ || ref)), w/o term 2 never; the toolkit's closed forms say the same

    Collects the previous claims; in float64 a gap below rounding is a 1, so the comparison is at beta >= 0.1."""
    wrong = sum(
        not OPTIMAL_MASS[name](float(regularizer.optimal_mass(q, beta, 0.06)), q)
        for q in (1e-6, 0.1, 0.5, 0.9)
        for beta in (0.1, 1.0, 1e3)
        for name, regularizer in formulas.regularizers.items()
    )
    return [Evidence("float64", "q from 1e-6 to 0.9, beta from 0.1 to 1e3", wrong, 0, "violations counted")]


@claim("tabular-training-reaches-the-optimum", BEYOND)
def tabular_training(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """a tabular softmax policy trained by gradient on each exact objective but w/o term 1's, which has no optimum, came
    within 1e-6 of Z* at every q and beta tried, and with CoKL and the forward KLs within 1e-6 nats of ref+

    Without shared parameters nothing stands between gradient ascent and the optimum; where Z* = 1 the logits diverge
    and Z approaches it. w/o term 1 has no optimum."""
    per_axis = 3 * max(int(effort.programs**0.5), 2)
    masses, betas = (axis.ravel() for axis in np.meshgrid([0.02, 0.1, 0.5], 10 ** np.linspace(-3, 1, per_axis)))
    reference = tabular_reference(masses, actions=20, correct=5, seed=0)

    def errors(name: str) -> tuple[float, float]:
        regularizer = formulas.regularizers[name]
        trained = train_tabular(regularizer, reference, torch.from_numpy(betas))
        optimum = np.asarray(regularizer.optimal_mass(masses, betas, 0.25))
        divergence = formulas.regularizers["cokl"].value(trained, reference).max()
        keeps = name in ("cokl", "correct_forward_kl", "forward_kl")
        return float(np.abs(trained.mass.numpy() - optimum).max()), float(divergence) if keeps else 0.0

    mass_error, conditional = worst_of_each(formulas.regularizers.keys() - {"cokl_without_term1"}, errors)
    domain = f"q = 0.02, 0.1, 0.5; {per_axis} beta in [1e-3, 10]; 20 actions"
    return [
        Evidence("gradient training", f"{domain}: |Z - Z*|", mass_error, 1e-6, certified=False),
        Evidence("gradient training", "the forward KLs' conditional KL [nats]", conditional, 1e-6, certified=False),
    ]


@claim("no-reward-on-the-regularized-prompts", BEYOND)
def no_reward(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """where the reward does not act (the paper's task shift), population CoKL leaves Z free; forward, reverse KL and JS
    hold it at q, correct-only forward KL pulls it to 1, restricted reverse KL to q / e, w/o term 1 to 0

    Without Z the maximizer of -beta D is D's minimizer. Logit gradients at the reference's conditionals: CoKL's is
    zero for every Z; the others' component along the correct logits is s(Z), with the stated zero."""
    base = torch.tensor([0.4, -0.3, 0.9, 0.1, -0.6], dtype=torch.float64)
    mask = torch.tensor([True, True, False, False, False])
    reference = Policy(base, CorrectSet.from_mask(mask))
    q = float(reference.mass)
    pulls_to = {"forward_kl": q, "reverse_kl": q, "jensen_shannon": q, "restricted": q / np.e}
    pulls_to |= {"correct_forward_kl": 1.0, "cokl_without_term1": 0.0}
    regularizers = {**formulas.regularizers, "restricted": formulas.restricted_reverse_kl}
    worst, wrong = 0.0, 0
    for mass in (0.05, 0.2, q, 0.6, 0.9):
        shift = np.log(mass / (1 - mass)) - np.log(q / (1 - q))
        policy = Policy(base + shift * mask, reference.correct)
        worst = largest(worst, float(formulas.regularizers["cokl"].logit_gradient(policy, reference).abs().max()))
        for name, target in pulls_to.items():
            slope = float(regularizers[name].logit_gradient(policy, reference)[mask].sum())
            wrong += not (abs(slope) <= 1e-14 if mass == target else slope * (mass - target) > 0)
    return [
        Evidence("float64", "CoKL's gradient at pi+ = ref+, five values of Z", worst, 1e-14),
        Evidence("float64", "signs of the others' pull on Z", wrong, 0, "violations counted"),
    ]


@claim("full-kl-optima-keep-the-conditional", BEYOND)
def keep_the_conditional(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """at the population optimum forward KL, reverse KL and JS have KL(ref+ || pi+) = 0 for every beta > 0, and as beta
    -> 0 they share CoKL's maximizer: coverage under pi+ is the same at all these optima

    Theorem 2's first clause, read for what Figure 2 measures. Entropy alone moves pi+ (to uniform). The policy with
    the reference's conditionals and Z = Z* is stationary for the toolkit's own gradient of Z - beta D, and the
    toolkit's CoKL vanishes there; at beta = 1e-12 it is CoKL's maximizer but for a gap of at most beta."""

    def errors(case: tuple[str, tuple[Reference, float]]) -> tuple[float, ...]:
        name, (reference, beta) = case
        regularizer = formulas.regularizers[name]
        certificate = maximise(name, reference, beta)
        plus = certificate.solution[: reference.correct]
        mass = min(float(regularizer.optimal_mass(reference.q, beta)), 1 - 1e-15)  # below 1, but for rounding
        correct = np.arange(len(reference.probs)) < reference.correct
        problem = Problem(np.log(reference.probs), np.log(reference.moved_to(mass)), correct)
        policy = problem.policy
        slope = policy.mass_logit_gradient() - beta * regularizer.logit_gradient(policy, problem.reference)
        return (
            certificate.worst,
            float(rel_entr(reference.plus, plus / plus.sum()).sum()),
            float(slope.abs().max()) / max(1.0, beta),
            float(formulas.regularizers["cokl"].value(policy, problem.reference)),
            1 - float(regularizer.optimal_mass(reference.q, 1e-12)),
        )

    drawn = random_references(59, max(effort.programs // 2, 2))
    cases = product(("forward_kl", "reverse_kl", "jensen_shannon"), drawn)
    certificates, worst, stationary_error, divergence, gap = worst_of_each(cases, errors)
    detail = f"largest conditional KL of a certified solution {worst:.1e}"
    return [
        Evidence("convex program", "three regularizers", largest(certificates, worst), TOLERANCE, detail),
        Evidence("float64", "gradient of Z - beta D at Z*, over max(1, beta)", stationary_error, 1e-12),
        Evidence("float64", "the toolkit's CoKL at Z*", divergence, 1e-12),
        Evidence("float64", "1 - Z* at beta = 1e-12", gap, 1.1e-12),
    ]
