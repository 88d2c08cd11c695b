"""Beyond the paper: the population optimum of every other registered regularizer, and f-divergences in general."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import sympy
import torch
from mpmath import mp, mpf
from scipy.special import rel_entr
from torch import Tensor

from cokl.groups import ResponseGroups
from cokl.policy import CorrectSet, Policy
from theory.claim import BEYOND, Effort, Evidence, claim, largest, proved
from theory.claims.decomposition import EXACT
from theory.claims.gap import DOMAIN, LOGIT_Q, against_programs, over_domain, parameter_grid, shares, stationary
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


def _spread(mass: float, reference: Reference) -> np.ndarray:
    """Correctness `mass`, uniform within the correct and within the incorrect actions."""
    actions = len(reference.probs)
    wrong = actions - reference.correct
    return np.repeat([mass / reference.correct, (1 - mass) / wrong], [reference.correct, wrong])


@claim("entropy-optimum", BEYOND)
def entropy_optimum(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """Z - beta (-H) is largest at Z* = sigmoid(logit c + 1 / beta), c = correct actions / actions, uniform within both
    sets; q does not enter, and the conditional KL to the reference stays

    Gibbs: the maximizer of E[r] + beta H is proportional to exp(r / beta), so the odds of correctness are
    c / (1 - c) exp(1 / beta). Equivalently -H = KL(pi || uniform) - log A, reverse KL with a uniform reference."""

    def policy_at(reference: Reference, beta: float) -> np.ndarray:
        fraction = mpf(reference.correct) / len(reference.probs)
        return _spread(float(formulas.entropy_optimum(mp, fraction, mpf(beta))), reference)

    return [_certified("entropy", policy_at, lambda policy, _: float(rel_entr(policy, 1).sum()), effort, 51)]


@claim("entropy-below-reference", BEYOND)
def entropy_below(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """the entropy optimum lies below q exactly if c < q and beta > 1 / (logit q - logit c); the gap is always there

    With lead = logit q - logit c and beta = factor times the threshold, logit q - logit Z* is lead (1 - 1 / factor)
    by algebra. The boxes prove that the odds of q over those of Z*, less 1, have the factor's sign."""

    def margin(sign: int) -> Callable[..., Interval]:
        def function(lead: Interval, log_factor: Interval) -> Interval:
            factor = Intervals.exp(log_factor * sign)  # beta over its threshold 1 / lead
            return sign * (Intervals.exp(lead * (1 - 1 / factor)) - 1)  # odds of q over odds of Z*, less 1

        return function

    box = [(0.1, 20.0), (0.01, 5.0)]
    proofs = {
        "above the threshold": prove_positive(margin(1), box, effort.boxes),
        "below the threshold": prove_positive(margin(-1), box, effort.boxes),
    }
    worst = mpf(0)
    for q, _ in parameter_grid(effort.samples):
        for fraction in (mpf("1e-4"), mpf("0.06"), mpf("0.5")):
            if fraction < q:
                threshold = formulas.below_reference_threshold(mp, q, fraction)
                worst = largest(worst, abs(formulas.entropy_optimum(mp, fraction, threshold) / q - 1))
    c, factor = sympy.symbols("c factor", positive=True)
    z = formulas.entropy_optimum(sympy, c, factor * formulas.below_reference_threshold(sympy, Q, c))
    lead = sympy.log(Q) - sympy.log(1 - Q) - sympy.log(c) + sympy.log(1 - c)
    residual = sympy.log(Q) - sympy.log(1 - Q) + sympy.log(1 / z - 1) - lead * (1 - 1 / factor)
    return [
        Evidence("50 digits", "Z* = q at the threshold", float(worst), EXACT),
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

    def policy_at(reference: Reference, beta: float) -> np.ndarray:
        return reference.moved_to(float(formulas.jensen_shannon_optimum(mp, mpf(reference.q), mpf(beta))))

    def optimum(num, q, beta):
        return formulas.jensen_shannon_optimum(num, q, beta)

    z, q, beta = sympy.symbols("z q beta", positive=True)
    divergence = (
        z * sympy.log(2 * z / (z + q))
        + (1 - z) * sympy.log(2 * (1 - z) / (2 - z - q))
        + q * sympy.log(2 * q / (z + q))
        + (1 - q) * sympy.log(2 * (1 - q) / (2 - z - q))
    ) / 2
    residual = sympy.diff(z - beta * divergence, z) - formulas.jensen_shannon_slope(sympy, z, q, beta)
    with mp.workdps(1000):
        error = stationary(formulas.jensen_shannon_slope, optimum, effort)
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
    proofs = {
        "Z* > q": over_domain(lambda q, p, beta: formulas.jensen_shannon_excess(Intervals, q, p, beta), effort),
        "Z* < 1": over_domain(lambda q, p, beta: formulas.jensen_shannon_gap(Intervals, q, p, beta), effort),
    }
    forms = forms_of_an_optimum(
        "Jensen-Shannon",
        formulas.jensen_shannon_optimum,
        formulas.jensen_shannon_excess,
        formulas.jensen_shannon_gap,
    )
    unit, beta = 1 - DECAY, -2 / sympy.log(DECAY)
    denominator = 1 + unit * Q + sympy.sqrt((DECAY - (1 - Q) * unit) ** 2 + 4 * unit * Q)
    forms["1 - Z* = 2 p e / (1 + u q + root)"] = (1 - formulas.jensen_shannon_optimum(sympy, Q, beta)) - 2 * (
        1 - Q
    ) * DECAY / denominator
    return [identities("q in (0, 1), beta > 0", forms), proved(DOMAIN, proofs)]


@claim("jensen-shannon-monotone", BEYOND)
def jensen_shannon_monotone(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """Z*_JS is strictly decreasing in beta, with limits 1 and q

    L(z) = log[z / (z + q)] - log[(1 - z) / (2 - z - q)] has L' = q / (z (z + q)) + (1 - q) / ((1 - z)(2 - z - q)) >
    0 and 2 / beta = L(Z*), so Z* decreases. The boxes prove L' > 0."""
    z, q = sympy.symbols("z q", positive=True)
    balance = sympy.log(z / (z + q)) - sympy.log((1 - z) / (2 - z - q))
    slope = q / (z * (z + q)) + (1 - q) / ((1 - z) * (2 - z - q))
    residual = sympy.simplify(sympy.diff(balance, z) - slope)
    stated = sympy.simplify(sympy.diff(formulas.jensen_shannon_slope(sympy, z, q, 2), z) + slope)

    def positive(logit_z: Interval, logit_q: Interval) -> Interval:
        (z, y), (q, p) = shares(logit_z), shares(logit_q)
        return q / (z * (z + q)) + p / (y * (y + p))

    proof = prove_positive(positive, [(-30.0, 30.0), LOGIT_Q], effort.boxes)
    limits = mpf(0)
    for q_value, _ in parameter_grid(effort.samples):
        far = formulas.jensen_shannon_optimum(mp, q_value, mpf(10) ** 12)
        near = formulas.jensen_shannon_optimum(mp, q_value, mpf("0.01"))
        limits = largest(limits, abs(far - q_value) * 10**11, (1 - near) * mpf(10) ** 70)
    return [
        Evidence("symbolic", "L' as stated", float((residual != 0) + (stated != 0)), 0),
        proved("q in [1e-6, 1 - 1e-6], z within 1e-13 of 0 and 1", {"L' > 0": proof}),
        Evidence("50 digits", "|Z* - q| <= 1e-11 at beta = 1e12, 1 - Z* <= 1e-70 at beta = 0.01", float(limits), 1),
    ]


@claim("restricted-reverse-kl-optimum", BEYOND)
def restricted_optimum(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """restricted correct-only reverse KL has pi+ = ref+ and Z* = min(1, q exp(1 / beta - 1))

    The penalty is Z log(Z / q) + Z KL(pi+ || ref+): the second term is least at ref+, and z - beta z log(z / q) is
    concave with slope 1 - beta (log(z / q) + 1). pi- is free."""

    def optimum(q: float, beta: float) -> float:
        return min(1.0, float(formulas.restricted_reverse_kl_optimum(mp, mpf(q), mpf(beta))))

    certificates, shortfall, distance = 0.0, 0.0, 0.0
    for reference, beta in random_references(53, effort.programs):
        certificate = maximise("restricted_reverse_kl", reference, beta)
        z = optimum(reference.q, beta)
        shortfall = largest(shortfall, abs(certificate.value - (z - beta * z * np.log(z / reference.q))))
        solution = certificate.solution[: reference.correct]
        distance = largest(distance, float(np.abs(solution - z * reference.plus).max()))
        certificates = largest(certificates, certificate.worst)
    z, q, beta = sympy.symbols("z q beta", positive=True)
    slope = sympy.diff(z - beta * z * sympy.log(z / q), z)
    residual = sympy.simplify(
        sympy.expand_log(slope.subs(z, formulas.restricted_reverse_kl_optimum(sympy, q, beta)), force=True)
    )
    detail = f"residuals and gap at most {certificates:.1e}; correct actions within {distance:.1e}"
    return [
        Evidence(
            "convex program", f"{effort.programs} references", largest(certificates, shortfall), TOLERANCE, detail
        ),
        Evidence("symbolic", "the slope vanishes there", float(residual != 0), 0),
    ]


@claim("restricted-reverse-kl-regimes", BEYOND)
def restricted_regimes(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """restricted reverse KL has a gap exactly for beta > 1 / (1 - log q); it is below q (to q / e) exactly for beta > 1

    log(Z* / q) = 1 / beta - 1 changes sign at beta = 1; Z* reaches 1 at 1 / beta = 1 - log q."""

    def below(logit_q: Interval, log_beta: Interval) -> Interval:
        q, _ = shares(logit_q)
        return 1 - formulas.restricted_reverse_kl_optimum(Intervals, q, Intervals.exp(log_beta)) / q

    def above(logit_q: Interval, log_beta: Interval) -> Interval:
        return -below(logit_q, log_beta)

    def gap(sign: int) -> Callable[[Interval, Interval], Interval]:
        def function(logit_q: Interval, log_factor: Interval) -> Interval:
            q, _ = shares(logit_q)
            beta = formulas.restricted_reverse_kl_threshold(Intervals, q) * Intervals.exp(sign * log_factor)
            return -sign * Intervals.log(formulas.restricted_reverse_kl_optimum(Intervals, q, beta))

        return function

    q_box = (-13.82, 10.0)
    proofs = {
        "Z* < q for beta > 1": prove_positive(below, [LOGIT_Q, (0.02, 6.91)], effort.boxes),
        "Z* > q for beta < 1": prove_positive(above, [LOGIT_Q, (-6.91, -0.02)], effort.boxes),
        "gap above the threshold": prove_positive(gap(1), [q_box, (0.05, 5.0)], effort.boxes),
        "none below it": prove_positive(gap(-1), [q_box, (0.05, 5.0)], effort.boxes),
    }
    threshold = formulas.restricted_reverse_kl_threshold(sympy, Q)
    at_threshold = sympy.log(formulas.restricted_reverse_kl_optimum(sympy, Q, threshold))
    limit = abs(formulas.restricted_reverse_kl_optimum(mp, mpf("0.3"), mpf(10) ** 60) / (mpf("0.3") / mp.e) - 1)
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
    uniform = Policy(torch.zeros(3, dtype=torch.float64), correct)
    error = 0.0
    for depth in (10.0, 100.0, 700.0):
        policy = Policy(torch.tensor([-depth, -depth, 0.0], dtype=torch.float64), correct)
        value = float(formulas.regularizers["cokl_without_term1"].value(policy, uniform))
        error = largest(error, abs(value - (np.log(2) - depth - np.log1p(2 * np.exp(-depth)))) / depth)
    return [
        Evidence("symbolic", "all beta > 0", float(wrong), 0),
        Evidence("float64", "Z down to 1e-304: value log Z", error, 1e-12),
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
    wrong, value_error, stationary_error = 0, 0.0, 0.0
    for problem in random_problems(55, effort.samples):
        policy, reference = problem.policy, problem.reference
        pull = _floor_pull(formulas, policy, reference)
        gate = floor_gate(reference.mass, policy.mass)
        expected = gate * policy.correct.add_to(-policy.probs * reference.mass, reference.correct_probs)
        value_error = largest(value_error, float((pull - expected).abs().max()))
        along = float(pull[policy.correct.mask].sum()) if gate else 0.0  # moves all correct logits together
        wrong += not along >= 0
        if gate:
            wrong += not along >= float(gate * reference.mass * (1 - policy.mass)) - 1e-12
        best = _floor_optimum(reference)
        field = best.mass_logit_gradient() - formulas.regularizers["cokl"].logit_gradient(best, reference)
        field = field + _floor_pull(formulas, best, reference)
        stationary_error = largest(stationary_error, float(field.abs().max()))
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
    worst = 0.0
    for index in range(max(effort.samples // 4, 6)):
        correct = [(torch.rand(3, 4, generator=generator) < (0.8, 0.2)[(index + side) % 2]).double() for side in (0, 1)]
        streams = [ResponseGroups(torch.zeros(3, 4, dtype=torch.float64), rewards) for rewards in correct]
        weights = formulas.sampled_floor_weights(*streams)
        means = [sum(sum(row) / 4 for row in rewards.tolist()) / 3 for rewards in correct]
        gate = means[0] - means[1] if means[0] > means[1] else 0.0
        worst = largest(worst, float(weights.rollout is not None))
        for i, row in enumerate(correct[0].tolist()):
            for j, reward in enumerate(row):
                worst = largest(worst, abs(float(weights.reference[i, j]) + gate * reward / 4))
    return worst


@claim("floor-is-not-a-mass-constraint", BEYOND)
def floor_not_mass(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """L_floor = g q [KL(ref+ || pi+) - log Z + H(ref+)]: below the floor it anchors pi+ as CoKL does, not Z alone; with
    the gate's gradient stopped it is the gradient of no function

    The reference responses' cross-entropy is the replay term of Eq. 9. The field g(Z) q (pi - ref+) has a symmetric
    Jacobian only if grad g is parallel to pi - ref+, that is where pi+ = ref+."""
    worst = 0.0
    asymmetries = []
    for problem in random_problems(56, max(effort.samples // 8, 4), actions=(4, 8)):
        correct = CorrectSet.from_mask(torch.from_numpy(problem.correct)[None])
        reference = Policy(torch.from_numpy(problem.reference_logits / 10)[None], correct)
        low = torch.from_numpy(problem.reference_logits / 10 + problem.policy_logits / 30 - 3.0 * problem.correct)

        def field(logits, reference=reference, correct=correct):
            return formulas.floor_logit_gradient(Policy(logits[None], correct), reference)[0]

        policy = Policy(low[None], correct)
        gate = max(float(reference.mass - policy.mass), 0)
        replay = formulas.regularizers["cokl"].value(policy, reference) - policy.log_mass
        entropy = -(reference.conditional_probs * reference.conditional_log_probs).sum(-1)
        split = gate * float(reference.mass * (replay + entropy))
        worst = largest(worst, abs(float(formulas.floor_value(policy, reference)) - split))
        if gate and len(reference.correct.actions[0]) > 1:
            step = 1e-6
            columns = [
                (field(low + step * e) - field(low - step * e)) / (2 * step) for e in torch.eye(len(low)).double()
            ]
            jacobian = torch.stack(columns, -1)
            asymmetries.append(float((jacobian - jacobian.T).abs().max() / jacobian.abs().max()))
    return [
        Evidence("float64", "random pairs below the floor: the split", worst, 1e-12),
        Evidence(
            "finite differences",
            "asymmetry of the field's Jacobian",
            float(not asymmetries) + sum(not asymmetry >= 1e-5 for asymmetry in asymmetries),
            0,
            f"{len(asymmetries)} fields, each by at least {min(asymmetries, default=0):.1e}",
        ),
    ]


@claim("f-divergence-statement", BEYOND)
def f_divergences(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """with f convex and differentiable, a maximizer of Z - beta D_f with the reference's conditionals has Z* = 1, or Z*
    >= q solves f'(z / q) - f'((1 - z) / (1 - q)) = 1 / beta; Z* < 1 exactly for beta > 1 / (f'(1 / q) - f'(0+)), which
    is for every beta iff f'(0+) = -inf

    Proof in the docstring of `theory.divergences`; checked on eight generators."""
    programs, certificates, distance, closed = 0.0, 0.0, 0.0, mpf(0)
    for divergence in F_DIVERGENCES:
        if divergence.convex_program:
            for reference, beta in random_references(57, max(effort.programs // 2, 2)):
                certificate = maximise(divergence.convex_program, reference, beta)
                with mp.workdps(25):
                    z = divergence.optimum(mpf(reference.q), mpf(beta))
                    inside = min(z, 1 - mpf("1e-24"))
                    value = float(z - mpf(beta) * divergence.bernoulli(mp, inside, mpf(reference.q)))
                programs = largest(programs, certificate.worst, abs(certificate.value - value))
                certificates = largest(certificates, certificate.worst)
                distance = largest(distance, float(np.abs(certificate.solution - reference.moved_to(float(z))).max()))
    with mp.workdps(30):
        for q in (mpf("0.01"), mpf("0.4"), mpf("0.95")):
            for beta in (mpf("0.2"), mpf(1), mpf(30)):
                by_name = {divergence.name: divergence.optimum(q, beta) for divergence in F_DIVERGENCES}
                closed = largest(
                    closed,
                    abs(by_name["forward KL"] - formulas.forward_kl_optimum(mp, q, beta)),
                    abs(by_name["reverse KL"] - formulas.reverse_kl_optimum(mp, q, beta)),
                    abs(by_name["Jensen-Shannon"] - formulas.jensen_shannon_optimum(mp, q, beta)),
                    abs(by_name["Pearson chi^2"] - min(1, q + q * (1 - q) / (2 * beta))),
                )
    domain = f"six generators, {max(effort.programs // 2, 2)} references each"
    detail = f"residuals and gap at most {certificates:.1e}; policies within {distance:.1e}"
    return [
        Evidence("convex program", domain, programs, TOLERANCE, detail),
        Evidence("high precision", "four closed forms against the general root", float(closed), 1e-25),
    ]


@claim("f-divergence-gap-threshold", BEYOND)
def gap_threshold(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """Pearson chi^2 (f'(0+) = -2) has no gap up to beta = q / 2; total variation (a kink at 1) keeps Z* = q for beta >
    1 and has Z* = 1 for beta < 1

    Pearson: 1 / (f'(1 / q) - f'(0+)) = 1 / (2 (1 / q - 1) + 2) = q / 2. Total variation: d(z) = |z - q|, so the
    slope above q is 1 - beta."""
    worst, distance = 0.0, 0.0
    pearson = next(divergence for divergence in F_DIVERGENCES if divergence.name == "Pearson chi^2")
    general = pearson.gap_threshold(sympy, Q) - formulas.pearson_gap_threshold(sympy, Q)
    for reference, _ in random_references(58, max(effort.programs // 2, 2)):
        q = reference.q
        pearson_threshold = float(formulas.pearson_gap_threshold(mp, mpf(q)))
        variation_threshold = float(formulas.total_variation_gap_threshold(mp, mpf(q)))
        for name, beta, mass in (
            ("pearson_chi_squared", 0.8 * pearson_threshold, 1.0),
            ("pearson_chi_squared", 1.25 * pearson_threshold, q + q * (1 - q) / (2.5 * pearson_threshold)),
            ("total_variation", 0.8 * variation_threshold, 1.0),
            ("total_variation", 1.25 * variation_threshold, q),
        ):
            certificate = maximise(name, reference, beta)
            reached = float(certificate.solution[: reference.correct].sum())
            worst = largest(worst, certificate.worst)
            distance = largest(distance, abs(reached - mass))
    return [
        identities("q in (0, 1)", {"Pearson's threshold from the general one": general}),
        Evidence("convex program", "20% below and 25% above each threshold", worst, TOLERANCE),
        Evidence("convex program", "Z of the certified solutions", distance, 1e-4, "from gaps of 1e-8 by curvature"),
    ]


def _one(z: float, q: float) -> bool:
    return z == 1


def _between(z: float, q: float) -> bool:
    return q < z < 1


OPTIMAL_MASS: dict[str, Callable[[float, float], bool]] = {
    "cokl": _one,
    "correct_forward_kl": _one,
    "correct_reverse_kl": _one,
    "cokl_without_term2": _one,
    "cokl_without_term1": lambda z, q: z == 0,
    "forward_kl": _between,
    "reverse_kl": _between,
    "jensen_shannon": _between,
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
    per_axis = max(int(effort.programs**0.5), 2)
    masses, betas = (axis.ravel() for axis in np.meshgrid([0.02, 0.1, 0.5], 10 ** np.linspace(-3, 1, 3 * per_axis)))
    reference = tabular_reference(masses, actions=20, correct=5, seed=0)
    mass_error, conditional = 0.0, 0.0
    for name, regularizer in formulas.regularizers.items():
        if name == "cokl_without_term1":
            continue
        trained = train_tabular(regularizer, reference, torch.from_numpy(betas))
        optimum = np.asarray(regularizer.optimal_mass(masses, betas, 0.25))
        mass_error = largest(mass_error, float(np.abs(trained.mass.numpy() - optimum).max()))
        if name in ("cokl", "correct_forward_kl", "forward_kl"):
            divergence = formulas.regularizers["cokl"].value(trained, reference)
            conditional = largest(conditional, float(divergence.max()))
    domain = f"q = 0.02, 0.1, 0.5; {3 * per_axis} beta in [1e-3, 10]; 20 actions"
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
    correct = CorrectSet.from_mask(mask)
    reference = Policy(base, correct)
    q = float(reference.mass)
    worst = 0.0
    wrong = 0
    for target in (0.05, 0.2, q, 0.6, 0.9):
        shift = np.log(target / (1 - target)) - np.log(q / (1 - q))
        policy = Policy(base + shift * mask, correct)
        slopes = {
            name: float(regularizer.logit_gradient(policy, reference)[mask].sum())
            for name, regularizer in formulas.regularizers.items()
        }
        worst = largest(worst, float(formulas.regularizers["cokl"].logit_gradient(policy, reference).abs().max()))
        for name in ("forward_kl", "reverse_kl", "jensen_shannon"):
            wrong += not (abs(slopes[name]) <= 1e-14 if target == q else slopes[name] * (target - q) > 0)
        wrong += not slopes["correct_forward_kl"] < 0
        wrong += not slopes["cokl_without_term1"] > 0
        restricted = float(formulas.restricted_reverse_kl.logit_gradient(policy, reference)[mask].sum())
        wrong += not restricted * (target - q / np.e) > 0
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
    worst, certificates, stationary_error, divergence, gap = 0.0, 0.0, 0.0, 0.0, 0.0
    for name in ("forward_kl", "reverse_kl", "jensen_shannon"):
        for reference, beta in random_references(59, max(effort.programs // 2, 2)):
            certificate = maximise(name, reference, beta)
            plus = certificate.solution[: reference.correct]
            worst = largest(worst, float(rel_entr(reference.plus, plus / plus.sum()).sum()))
            certificates = largest(certificates, certificate.worst)
            mass = min(float(formulas.regularizers[name].optimal_mass(reference.q, beta)), 1 - 1e-15)
            problem = Problem(
                np.log(reference.probs),
                np.log(reference.moved_to(mass)),  # below 1, which it is but for rounding
                np.arange(len(reference.probs)) < reference.correct,
            )
            slope = problem.policy.mass_logit_gradient() - beta * formulas.regularizers[name].logit_gradient(
                problem.policy, problem.reference
            )
            stationary_error = largest(stationary_error, float(slope.abs().max()) / max(1.0, beta))
            divergence = largest(
                divergence, float(formulas.regularizers["cokl"].value(problem.policy, problem.reference))
            )
            near = 1 - float(formulas.regularizers[name].optimal_mass(reference.q, 1e-12))
            gap = largest(gap, near)
    detail = f"largest conditional KL of a certified solution {worst:.1e}"
    return [
        Evidence("convex program", "three regularizers", largest(certificates, worst), TOLERANCE, detail),
        Evidence("float64", "gradient of Z - beta D at Z*, over max(1, beta)", stationary_error, 1e-12),
        Evidence("float64", "the toolkit's CoKL at Z*", divergence, 1e-12),
        Evidence("float64", "1 - Z* at beta = 1e-12", gap, 1.1e-12),
    ]
