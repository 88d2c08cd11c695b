"""A claim refuses a false statement put in the place of its own."""

import dataclasses
import inspect
import math
import sys

import numpy as np
import pytest
from scipy.stats import poisson

import theory.claim
from theory.claim import BOXES, QUICK
from theory.claims import registered_claims
from theory.formulas import Formulas

CLAIMS = registered_claims()

# Of every claim: what its check states, and what is false instead.
FALSE_STATEMENTS = {
    "correctness-parameterization": [
        ("exact.mass * a + (1 - exact.mass) * b", "exact.mass * a + exact.mass * b"),
        ("exact.mass * a + (1 - exact.mass) * b", "a + b"),
        ("policy.mass * policy.conditional_probs", "policy.conditional_probs"),
    ],
    "forward-decomposition": [
        ("source.mass * kl(source.plus, target.plus)", "target.mass * kl(source.plus, target.plus)"),
        ("(1 - source.mass) * kl(source.minus", "source.mass * kl(source.minus"),
        ("+ q * divergence([a, 1 - a], [c, 1 - c])", "- q * divergence([a, 1 - a], [c, 1 - c])"),
    ],
    "reverse-decomposition": [
        ("bernoulli_kl(mp, source.mass, target.mass)", "bernoulli_kl(mp, target.mass, source.mass)"),
        ("(1 - source.mass) * kl(source.minus", "(1 - target.mass) * kl(source.minus"),
        ("kl(source.plus, target.plus)", "kl(target.plus, source.plus)"),
    ],
    "decomposition-by-response-set": [
        ("q * mpmath.log(q / z)", "q * mpmath.log(z / q)"),
        ("q * mpmath.log(q / z)", "z * mpmath.log(q / z)"),
        ("(False, 1 - reference.mass, 1 - policy.mass", "(False, reference.mass, policy.mass"),
    ],
    "bernoulli-term-nonnegative": [
        ("- 2 * (a - b) ** 2", "- 3 * (a - b) ** 2"),
        ("- 2 * (a - b) ** 2", "- 2 * (a - b)"),
        (
            "lambda a, b: formulas.bernoulli_kl(Intervals, a, b)",
            "lambda a, b: formulas.bernoulli_kl(Intervals, a, b) - 5",
        ),
    ],
    "decomposition-boundaries": [
        ("not math.isinf(float(away.total))", "math.isinf(float(away.total))"),
        ("float(unvisited) != 0", "float(unvisited) == 0"),
        ("float(towards.total) - full", "float(towards.total) - 2 * full"),
    ],
    "decomposition-boundary-rates": [
        (
            "bernoulli_kl(mp, q, z) + q * mpmath.log(z) + entropy",
            "bernoulli_kl(mp, q, z) + q * mpmath.log(z) - entropy",
        ),
        ("bernoulli_kl(mp, z, q) + mpmath.log(1 - q)", "bernoulli_kl(mp, z, q) + mpmath.log(q)"),
        ("bound = 2 * z *", "bound = 2 * z**2 *"),
    ],
    "cokl-definition": [
        (
            "kl(problem.exact_reference.plus, problem.exact_policy.plus)",
            "kl(problem.exact_policy.plus, problem.exact_reference.plus)",
        ),
        (
            "kl(problem.exact_reference.plus, problem.exact_policy.plus)",
            "kl(problem.exact_reference.probs, problem.exact_policy.probs)",
        ),
        (
            "kl(problem.exact_reference.plus, problem.exact_policy.plus)",
            "kl(problem.exact_reference.plus, problem.exact_policy.probs)",
        ),
    ],
    "cokl-equivalent-form": [
        ("log_mass - entropy", "log_mass + entropy"),
        ("cross_entropy + log_mass", "cross_entropy - log_mass"),
        ("        entropy = -mpmath", "        entropy = -2 * mpmath"),
    ],
    "replay-identity": [
        ("- mpmath.log(policy.mass)", "+ mpmath.log(policy.mass)"),
        ("kl(reference.plus, policy.plus) -", "kl(policy.plus, reference.plus) -"),
        ("measured - cokl + log_mass", "measured - cokl - log_mass"),
    ],
    "cokl-gradient": [
        ("(current - reference) @", "(reference - current) @"),
        ("(current - reference) @", "current @"),
        ("(current - reference) @", "(problem.policy.probs - reference) @"),
    ],
    "log-mass-gradient": [
        ("_dense_conditional(policy) @", "policy.probs @"),
        ("lambda moved: moved.log_mass", "lambda moved: moved.mass"),
        ("_dense_conditional(policy) @", "policy.mass * _dense_conditional(policy) @"),
    ],
    "gradient-under-shared-parameters": [
        ("detach() - reference.conditional_probs", "detach() + reference.conditional_probs"),
        ("detach() - reference.conditional_probs", "detach() - reference.correct_probs"),
        ("policy.conditional_probs.detach()", "policy.correct_probs.detach()"),
    ],
    "forward-kl-optimum": [
        (
            '_certified("forward_kl", formulas.forward_kl_optimum',
            '_certified("reverse_kl", formulas.forward_kl_optimum',
        ),
        ("root = (1 - beta + ((z - q)", "root = (1 + beta + ((z - q)"),
        ("square = (((z - q) ** 2 + q", "square = (((z - q) ** 2 - q"),
    ],
    "reverse-kl-optimum": [
        ('_certified("reverse_kl"', '_certified("forward_kl"'),
        ("optimum(sympy, Q, reverse_beta())", "optimum(sympy, Q, 2 * reverse_beta())"),
        ("formulas.reverse_kl_optimum, effort", "formulas.forward_kl_optimum, effort"),
    ],
    "full-kl-derivatives": [
        ('("forward", z - beta * divergence(q, z)', '("forward", z - beta * divergence(z, q)'),
        ('("reverse", z - beta * divergence(z, q)', '("reverse", z + beta * divergence(z, q)'),
        ("curvature(sympy, z, 1 - z,", "curvature(sympy, 1 - z, z,"),
    ],
    "full-kl-strict-concavity": [
        ("negative(formulas.forward_kl_curvature)", "negative(lambda *a: -formulas.forward_kl_curvature(*a))"),
        ("negative(formulas.reverse_kl_curvature)", "negative(lambda *a: -formulas.reverse_kl_curvature(*a))"),
        ("return -curvature(", "return curvature("),
    ],
    "forward-kl-unique-root": [
        ("- formulas.forward_kl_root_product", "+ formulas.forward_kl_root_product"),
        ("formulas.forward_kl_slope(sympy, q, q, beta) - 1", "formulas.forward_kl_slope(sympy, q, q, beta) + 1"),
        ("lambda q, p, beta: -formulas", "lambda q, p, beta: formulas"),
    ],
    "forward-kl-coefficient": [
        ("lambda q, p, place: -slope", "lambda q, p, place: slope"),
        ("- slope(sympy, z - q", "+ slope(sympy, z - q"),
        ("slope(sympy, z - q, q, 1 - q)", "slope(sympy, z, q, 1 - q)"),
    ],
    "full-kl-gap": [
        ('"Z*_FKL > q": formulas.forward_kl_excess', '"Z*_FKL < q": lambda *a: -formulas.forward_kl_excess(*a)'),
        (
            '"Z*_RKL > q": formulas.reverse_kl_excess',
            '"Z*_RKL > 2 q": lambda n, q, p, b: formulas.reverse_kl_excess(n, q, p, b) - q',
        ),
        ('"Z*_RKL < 1": formulas.reverse_kl_gap', '"Z*_RKL > 1": lambda *a: -formulas.reverse_kl_gap(*a)'),
    ],
    "full-kl-monotone": [
        ("lambda q, p, beta: -slope", "lambda q, p, beta: slope"),
        ("- slope(sympy, Q, 1 - Q, beta)", "+ slope(sympy, Q, 1 - Q, beta)"),
        ("return -formulas.reverse_kl_optimum_slope", "return formulas.reverse_kl_optimum_slope"),
    ],
    "reverse-kl-optimum-slope": [
        ("return -formulas.reverse_kl_optimum_slope", "return formulas.reverse_kl_optimum_slope"),
        ("- formulas.reverse_kl_optimum_slope(sympy", "+ formulas.reverse_kl_optimum_slope(sympy"),
        ("reverse_kl_optimum_slope(sympy, z, 1 - z, BETA)", "reverse_kl_optimum_slope(sympy, z, z, BETA)"),
    ],
    "full-kl-limit-large-beta": [
        ("lambda q, p, t: 2 - forward", "lambda q, p, t: 0.5 - forward"),
        ("lambda q, p, t: 2 - reverse", "lambda q, p, t: 0.5 - reverse"),
        ("* beta / 1000", "* beta**2 / 1000"),
    ],
    "full-kl-limit-small-beta": [
        ("2 - forward(Intervals", "0.5 - forward(Intervals"),
        ("2 - q * reverse(Intervals", "0.5 - q * reverse(Intervals"),
        ("* BETA * (1 - Q)", "* BETA * Q"),
    ],
    "cokl-ignores-incorrect-conditional": [
        ("_assembled(policy.mass, policy.plus", "_assembled(policy.mass / 2, policy.plus"),
        ("_assembled(policy.mass, policy.plus", "_assembled(policy.mass, reference.plus"),
        ("objective(policy, reference, mpf(1))", "objective(policy, reference, mpf(2))"),
    ],
    "cokl-exact-difference": [
        ("change - (high - low)", "change - beta * (high - low)"),
        ("change - (high - low)", "change + (high - low)"),
        ("_assembled(high, policy.plus", "_assembled(high, reference.plus"),
    ],
    "cokl-maximum": [
        ("mass, plus = 1, reference.plus", "mass, plus = 1, reference.plus[::-1]"),
        ("mass, plus = 1, reference.plus", "mass, plus = 0.9, reference.plus"),
        ("abs(claimed - 1)", "abs(claimed - 0.9)"),
    ],
    "cokl-unique-maximizer": [
        ("- 2 * apart**2", "- 8 * apart**2"),
        ("2 * beta * variation**2 / shortfall", "8 * beta * variation**2 / shortfall"),
        ("(1 - policy.mass) / shortfall", "2 * (1 - policy.mass) / shortfall"),
    ],
    "finite-group-gradient": [
        ("return -reference +", "return reference +"),
        ("_mass(bandit), size) * current", "_mass(bandit), size + 1) * current"),
        ("formulas.positive_count_probability(math, _mass(bandit), size) * current", "current"),
    ],
    "finite-group-gradient-recovery-form": [
        ("- missed * policy", "+ missed * policy"),
        ("+ slope * policy", "- slope * policy"),
        ("policy.mass_logit_gradient()", "policy.log_mass_logit_gradient()"),
    ],
    "conditional-weights-mean": [
        ("formulas.reference_weights), reference)", "formulas.reference_weights), current)"),
        ("formulas.rollout_weights(groups, 0.2)), current)", "formulas.rollout_weights(groups, 0.2)), reference)"),
        (".ravel() / probs[held].sum()", ".ravel()"),
    ],
    "recovery-series": [
        ("x ** (size + 1) / (size + 1)", "x**size / size"),
        ("x ** (size + 1) / (size + 1)", "x ** (size + 1)"),
        ("x = 1 - mpf(z)", "x = mpf(z)"),
    ],
    "recovery-derivative": [
        ("slope - formulas.recovery_slope(sympy, z, size)", "slope + formulas.recovery_slope(sympy, z, size)"),
        ("slope - formulas.recovery_slope(sympy, z, size)", "slope - formulas.recovery_slope(sympy, z, size - 1)"),
        ("- (1 - z) ** count", "+ (1 - z) ** count"),
    ],
    "recovery-bounds": [
        ("(1 - z) ** size * (1 / z - 1)", "(1 - z) ** size * (1 / z + 1)"),
        ("not formulas.recovery_lower(mp, mass, count)", "not 2 * formulas.recovery_lower(mp, mass, count)"),
        ("< formulas.recovery_upper(mp, mass, count)", "< formulas.recovery_upper(mp, mass, count) / 2"),
    ],
    "recovery-limit-not-uniform": [
        ("mpmath.e1(c)", "mpmath.e1(2 * c)"),
        ("formulas.recovery(c / size, size)", "formulas.recovery(c / size**2, size)"),
        ("float(mpmath.e1(c))) * size", "float(mpmath.e1(c))) * size**2"),
    ],
    "finite-group-optimum": [
        ("z - beta * formulas.recovery_closed_form", "z + beta * formulas.recovery_closed_form"),
        ("1 - beta * formulas.recovery_slope", "1 + beta * formulas.recovery_slope"),
        ("return formulas.finite_objective_slope", "return -formulas.finite_objective_slope"),
    ],
    "finite-group-gradient-on-a-network": [
        ("+ slope * policy.mass", "- slope * policy.mass"),
        ("+ slope * policy.mass", ""),
        ("potential = cokl.value", "potential = 2 * cokl.value"),
    ],
    "unfiltered-reference-groups": [
        ("return -held * reference", "return -reference"),
        ("(1 - q) ** 3 - (1 - z) ** 3", "(1 - z) ** 3 - (1 - q) ** 3"),
        ("factor * (z - q) > 0", "factor * (z - q) < 0"),
    ],
    "cached-references-are-the-target": [
        ("not missed > 0", "not missed < 0"),
        ("[1 / 2, 1 / 2, 0, 0]", "[1 / 3, 1 / 3, 1 / 3, 0]"),
        ("gradient(seen.log().clamp_min(-60))", "gradient(torch.where(correct, reference, -60.0))"),
    ],
    "score-function-surrogates-unbiased": [
        ('filtered=name == "correct_forward_kl"', 'filtered=name == "forward_kl"'),
        ('("entropy", "forward_kl",', '("correct_reverse_kl", "entropy", "forward_kl",'),
        ("exact = objects[name]", "exact = 2 * objects[name]"),
    ],
    "correct-reverse-kl-shrinkage": [
        ("formulas.pair_probability(math, _mass(bandit), size) * gradient", "gradient"),
        ("formulas.pair_probability", "formulas.positive_count_probability"),
        ('["correct_reverse_kl"].logit_gradient', '["reverse_kl"].logit_gradient'),
    ],
    "without-term1-finite-group": [
        ("_mass(bandit), size, 1.0)", "_mass(bandit), size, 2.0)"),
        ("value = z + beta * sum(", "value = z - beta * sum("),
        ("threshold(sympy, size)}) - 1", "threshold(sympy, size)}) - 2"),
    ],
    "importance-identities": [
        ("moment.sum() - current.mass", "moment.sum() - old.mass"),
        ("moment @ scores / moment.sum()", "moment @ scores"),
        ("(current.log_probs - old.log_probs)", "(old.log_probs - current.log_probs)"),
    ],
    "clipped-ratio": [
        ("clamp(1 - epsilon, 1 + epsilon)", "clamp(1 / (1 + epsilon), 1 + epsilon)"),
        ("clamp(1 - epsilon, 1 + epsilon)", "clamp(0, 1 + epsilon)"),
        ("(gamma.sum(-1) == 0) != (rewards", "(gamma.sum(-1) == 0) == (rewards"),
    ],
    "on-policy-point": [
        ("off.rewards.sum(-1, keepdim=True).clamp_min(1)", "size"),
        ("distance(*gradients)", "distance(gradients[0], 2 * gradients[1])"),
        (
            "bandit, size = case",
            "bandit, size = Bandit(case[0].reference, case[0].current, case[0].reference, case[0].correct), case[1]",
        ),
    ],
    "off-policy-gate": [
        ("zero_correct_probability(mass, size)", "zero_correct_probability(mass, size + 1)"),
        ("zero_correct_probability(mass, size)", "zero_correct_probability(CURRENT.sum(), size)"),
        ("rewards.sum(-1) == 1", "rewards.sum(-1) == 2"),
    ],
    "off-policy-bias-of-clipping": [
        ("to_the_limit[1] / to_the_limit[0] - 0.5", "to_the_limit[1] / to_the_limit[0] - 1"),
        ("clipped_limit(CURRENT, old, 0.2)", "clipped_limit(CURRENT, old, 0.5)"),
        ("float(not limit >= 1e-3)", "float(not limit < 1e-3)"),
    ],
    "entropy-optimum": [
        ("mpf(right) / (right + wrong)", "mpf(reference.q)"),
        ("mpf(right) / (right + wrong), mpf(beta)", "mpf(right) / (right + wrong), 2 * mpf(beta)"),
        ("float(rel_entr(policy, 1).sum())", "-float(rel_entr(policy, 1).sum())"),
    ],
    "jensen-shannon-optimum": [
        ("sympy.diff(z - beta * divergence, z)", "sympy.diff(z - 2 * beta * divergence, z)"),
        ("mpf(reference.q), mpf(beta)", "mpf(reference.q), 2 * mpf(beta)"),
        ("moved_to(float(optimum(", "moved_to(0.5 * float(optimum("),
    ],
    "jensen-shannon-gap": [
        ('("Z* > q", excess)', '("Z* < q", lambda *a: -excess(*a))'),
        ('("Z* < 1", gap)', '("Z* > 1", lambda *a: -gap(*a))'),
        ("optimum(sympy, Q, beta) - 2 * (1 - Q) * DECAY", "optimum(sympy, Q, beta) - (1 - Q) * DECAY"),
    ],
    "jensen-shannon-monotone": [
        ("lambda q, p, logit_z: slope", "lambda q, p, logit_z: -slope"),
        ("balance = sympy.log(z / (z + q)) -", "balance = sympy.log(z / (z + q)) +"),
        ("abs(far - point[0])", "abs(far - 1)"),
    ],
    "without-term1-unbounded": [
        ("!= sympy.oo", "!= -sympy.oo"),
        ("2) - beta / z**2", "2) + beta / z**2"),
        ("!= [beta]", "!= [2 * beta]"),
    ],
    "floor-is-not-a-mass-constraint": [
        ("- policy.log_mass", "+ policy.log_mass"),
        ("(replay + entropy)", "(replay - entropy)"),
        ("not asymmetry >= 1e-5", "not asymmetry < 1e-5"),
    ],
    "no-reward-on-the-regularized-prompts": [
        ('"forward_kl": q,', '"forward_kl": 1.0,'),
        ('"cokl_without_term1": 0.0', '"cokl_without_term1": 1.0'),
        ('["cokl"].logit_gradient', '["correct_forward_kl"].logit_gradient'),
    ],
    "conditional-penalties-decouple": [
        ("correct] - reference.plus)", "correct] - 1 / reference.correct)"),
        ("correct] - reference.plus)", "correct] - reference.q * reference.plus)"),
        ("correct] - reference.plus)", "correct] - reference.plus**2 / (reference.plus**2).sum())"),
    ],
    "zero-correct-probability": [
        ("(range(size + 1), size, mass)", "(range(size + 1), size, 1 - mass)"),
        ("(range(size + 1), size, mass)", "(range(size + 1), size - 1, mass)"),
        ("binom.pmf(range(size + 1), size, mass)", "poisson.pmf(range(size + 1), size * mass)"),
    ],
    "recovery-decreasing": [
        ("return -formulas.recovery_slope", "return formulas.recovery_slope"),
        ("0 < value < previous", "value > previous"),
        ("formulas.recovery(1.0, size)", "formulas.recovery(0.5, size)"),
    ],
    "surrogate-is-linear-in-log-likelihoods": [
        ("rewards / rewards.sum().clamp_min(1)", "rewards / len(rewards)"),
        ("delta @ scores[pair[1]] - alpha", "delta @ scores[pair[1]] + alpha"),
        ("(policy.log_mass - entropy)", "policy.log_mass"),
    ],
    "off-policy-bias-of-self-normalization": [
        ("abs(last - 0.5)", "abs(last - 0.25)"),
        ("abs(extrapolated - 0.5)", "abs(extrapolated - 0.5**0.9)"),
        ("abs(extrapolated - 0.5)", "abs(extrapolated - 0.25)"),
    ],
    "floor-keeps-the-optimum": [
        ("(q - mass).clamp_min(0)", "(q - mass).abs()"),
        ("(q - mass).clamp_min(0)", "(q / 2 - mass).clamp_min(0)"),
        ("reference.conditional_log_probs + np", "(2 * reference.conditional_log_probs).log_softmax(-1) + np"),
    ],
}


FEW = dataclasses.replace(QUICK, samples=8, boxes=2000, largest_group=8)


def test_every_claim_is_given_three_false_statements():
    assert sorted(FALSE_STATEMENTS) == sorted(CLAIMS)
    assert {len(set(false)) for false in FALSE_STATEMENTS.values()} == {3}


@pytest.mark.parametrize(
    ("claim", "true", "false"), [(claim, *pair) for claim, pairs in FALSE_STATEMENTS.items() for pair in pairs]
)
def test_a_false_statement_is_refused(monkeypatch, claim, true, false):
    """Its check, or what the check calls, with one place changed; boxes refute it, and are not merely undecided."""
    check = CLAIMS[claim].check
    own, module = inspect.getsource(check), inspect.getsource(sys.modules[check.__module__])
    place = own if true in own else module
    assert place.count(true) == 1
    monkeypatch.setattr(theory.claim, "CLAIMS", {})
    names = {"__name__": claim, "poisson": poisson}
    exec(compile(module.replace(place, place.replace(true, false)), claim, "exec"), names)
    with np.errstate(all="ignore"):
        evidence = theory.claim.CLAIMS[claim].check(Formulas(), FEW)
    assert any(piece.method != BOXES or piece.error == math.inf for piece in evidence if not piece.holds)
