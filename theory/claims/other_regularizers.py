"""Optima beyond the paper: of entropy, Jensen-Shannon, CoKL w/o term 1 and the floor, and of each without a reward."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import sympy
import torch
from mpmath import mp, mpf
from scipy.special import rel_entr
from torch import Tensor

from cokl.groups import ResponseGroups
from cokl.policy import CorrectSet, Policy
from theory import formulas
from theory.claim import BEYOND, Effort, Evidence, claim, largest, proved, worst_of_each, worst_over
from theory.claims.finite_group import distance
from theory.claims.gap import DOMAIN, against_programs, over, over_domain, parameter_grid, shares
from theory.claims.symbolic import DECAY, Q, forms_of_an_optimum, identities
from theory.definitions import Problem, random_problems
from theory.provers.arithmetic import Intervals
from theory.provers.convex import Reference


def _certified(
    name: str, policy_at: Callable[[Reference, float], np.ndarray], penalty: Callable, effort: Effort, seed: int
) -> Evidence:
    def claim_at(reference: Reference, beta: float) -> tuple[np.ndarray, float]:
        claimed = policy_at(reference, beta)
        return claimed, claimed[: reference.correct].sum() - beta * penalty(claimed, reference)

    return against_programs(name, claim_at, effort, seed)


@claim("entropy-optimum", BEYOND, "beyond")
def entropy_optimum(effort: Effort) -> list[Evidence]:
    """Z - beta (-H) is largest at Z* = sigmoid(logit c + 1 / beta), c = correct actions / actions, uniform within both
    sets; q does not enter, and the conditional KL to the reference stays

    Gibbs: the maximizer of E[r] + beta H is proportional to exp(r / beta), so the odds of correctness are
    c / (1 - c) exp(1 / beta). Equivalently -H = KL(pi || uniform) - log A, reverse KL with a uniform reference."""

    def policy_at(reference: Reference, beta: float) -> np.ndarray:
        right, wrong = reference.correct, len(reference.probs) - reference.correct
        mass = float(formulas.entropy_optimum(mp, mpf(right) / (right + wrong), mpf(beta)))
        return np.repeat([mass / right, (1 - mass) / wrong], [right, wrong])

    return [_certified("entropy", policy_at, lambda policy, _: float(rel_entr(policy, 1).sum()), effort, 51)]


def _jensen_shannon(policy: np.ndarray, reference: Reference) -> float:
    mixture = (policy + reference.probs) / 2
    return float(rel_entr(policy, mixture).sum() + rel_entr(reference.probs, mixture).sum()) / 2


@claim("jensen-shannon-optimum", BEYOND, "beyond")
def jensen_shannon_optimum(effort: Effort) -> list[Evidence]:
    """Z*_JS is the positive root of (1 - e) z^2 + (e - (1 - q)(1 - e)) z - q, e = exp(-2 / beta); conditionals stay

    By Jensen's inequality on each of the two response sets JS is least at the reference's conditionals, where the
    slope vanishes at log[z / (z + q)] - log[(1 - z) / (2 - z - q)] = 2 / beta; clearing the logarithms gives the
    quadratic."""
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
    return [
        _certified("jensen_shannon", policy_at, _jensen_shannon, effort, 52),
        identities("all z and q in (0, 1), beta > 0", {"the slope of z - beta JS": residual}),
    ]


@claim("jensen-shannon-gap", BEYOND, "beyond")
def jensen_shannon_gap(effort: Effort) -> list[Evidence]:
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


@claim("jensen-shannon-monotone", BEYOND, "beyond")
def jensen_shannon_monotone(effort: Effort) -> list[Evidence]:
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


@claim("without-term1-unbounded", BEYOND, "beyond")
def without_term1_unbounded(effort: Effort) -> list[Evidence]:
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


@claim("floor-keeps-the-optimum", "Eqs. 19-20; the optimum is beyond the paper", "beyond", place="Eqs. 19-20")
def floor_optimum(effort: Effort) -> list[Evidence]:
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
        field = field + _floor_pull(best, reference)
        return distance(_floor_pull(policy, reference), expected), float(field.abs().max())

    def violations(problem: Problem) -> int:
        policy, reference = problem.policy, problem.reference
        gate = floor_gate(reference.mass, policy.mass)
        pull = float(_floor_pull(policy, reference)[policy.correct.mask].sum())  # all correct logits together
        least = float(gate * reference.mass * (1 - policy.mass)) - 1e-12
        return (not pull >= 0) + (not pull >= least) if gate else 0

    problems = random_problems(55, effort.samples)
    value_error, stationary_error = worst_of_each(problems, errors)
    wrong = sum(map(violations, problems))
    sampled = _sampled_floor_error(effort)
    return [
        Evidence("float64", f"{effort.samples} random pairs: field against Eq. 20", value_error, 1e-12),
        Evidence("loops", "sampled weights of batches on both sides of the gate: -g r / G", sampled, 1e-15),
        Evidence("float64", "downward pulls on Z, and shortfall from g q (1 - Z)", wrong, 0),
        Evidence("float64", "the field at 1 - Z = 1e-13, pi+ = ref+, beta = lambda = 1", stationary_error, 1e-12),
    ]


def _floor_pull(policy: Policy, reference: Policy) -> Tensor:
    """(A,): the floor's descent direction in the logits of a batch of one context."""
    correct = CorrectSet.from_mask(policy.correct.mask[None])
    batch = Policy(policy.logits[None], correct), Policy(reference.logits[None], correct)
    return -formulas.floor_logit_gradient(*batch)[0]


def _floor_optimum(reference: Policy) -> Policy:
    """The policy with 1 - Z = 1e-13 and the reference's conditionals, next to the claimed maximizer."""
    log_probs = reference.log_probs - reference.log_incorrect_mass + np.log(1e-13)
    log_probs[reference.correct.actions] = reference.conditional_log_probs + np.log1p(-1e-13)
    return Policy(log_probs, reference.correct)


def _sampled_floor_error(effort: Effort) -> float:
    """The sampled floor's weights against Eqs. 19-20 as loops over batches of 3 prompts with groups of 4."""
    generator = torch.Generator().manual_seed(60)

    def error(index: int) -> float:
        correct = [(torch.rand(3, 4, generator=generator) < (0.8, 0.2)[(index + side) % 2]).double() for side in (0, 1)]
        streams = [ResponseGroups(torch.zeros(3, 4, dtype=torch.float64), rewards) for rewards in correct]
        weights = formulas.sampled_floor_weights(*streams)
        means = [sum(sum(row) / 4 for row in rewards.tolist()) / 3 for rewards in correct]
        gate = means[0] - means[1] if means[0] > means[1] else 0.0
        cells = zip(weights.flatten().tolist(), correct[0].flatten().tolist(), strict=True)
        return largest(*(abs(weight + gate * reward / 4) for weight, reward in cells))

    return worst_over(range(max(effort.samples // 4, 6)), error)


@claim("floor-is-not-a-mass-constraint", BEYOND, "beyond")
def floor_not_mass(effort: Effort) -> list[Evidence]:
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


@claim("no-reward-on-the-regularized-prompts", BEYOND, "beyond")
def no_reward(effort: Effort) -> list[Evidence]:
    """where the reward does not act (the paper's task shift), population CoKL leaves Z free; forward, reverse KL and JS
    hold it at q, replay pulls it to 1, w/o term 1 to 0

    Without Z the maximizer of -beta D is D's minimizer. Logit gradients at the reference's conditionals: CoKL's is
    zero for every Z; the others' component along the correct logits is s(Z), with the stated zero."""
    base = torch.tensor([0.4, -0.3, 0.9, 0.1, -0.6], dtype=torch.float64)
    mask = torch.tensor([True, True, False, False, False])
    reference = Policy(base, CorrectSet.from_mask(mask))
    q = float(reference.mass)
    pulls_to = {"forward_kl": q, "reverse_kl": q, "jensen_shannon": q}
    pulls_to |= {"correct_forward_kl": 1.0, "cokl_without_term1": 0.0}
    worst, wrong = 0.0, 0
    for mass in (0.05, 0.2, q, 0.6, 0.9):
        shift = np.log(mass / (1 - mass)) - np.log(q / (1 - q))
        policy = Policy(base + shift * mask, reference.correct)
        worst = largest(worst, float(formulas.regularizers["cokl"].logit_gradient(policy, reference).abs().max()))
        for name, target in pulls_to.items():
            slope = float(formulas.regularizers[name].logit_gradient(policy, reference)[mask].sum())
            wrong += not (abs(slope) <= 1e-14 if mass == target else slope * (mass - target) > 0)
    return [
        Evidence("float64", "CoKL's gradient at pi+ = ref+, five values of Z", worst, 1e-14),
        Evidence("float64", "signs of the others' pull on Z", wrong, 0, "violations counted"),
    ]
