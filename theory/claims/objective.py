"""Eqs. 8-10 and the first half of Appendix B: CoKL's equivalent form, the replay identity and the gradient."""

from __future__ import annotations

import mpmath
import torch
from mpmath import mpf

from cokl.policy import Policy
from theory.claim import BEYOND, Effort, Evidence, claim, largest
from theory.claims.decomposition import EXACT
from theory.definitions import DEFINITIONS, ExactPolicy, Problem, kl, random_problems, restricted_reverse_kl
from theory.formulas import Formulas


def _values(formulas: Formulas, problem: Problem) -> dict[str, tuple[float, mpf]]:
    """Each regularizer's float64 value beside its definition at 50 digits."""
    exact = problem.exact_policy, problem.exact_reference
    return {
        name: (float(formulas.regularizers[name].value(problem.policy, problem.reference)), definition(*exact))
        for name, definition in DEFINITIONS.items()
        if name in formulas.regularizers
    }


@claim("cokl-definition", "the toolkit's CoKL is KL(ref+ || pi+)", "Eq. 8 (appb-cokl-definition)")
def definition(formulas: Formulas, effort: Effort) -> list[Evidence]:
    worst = 0.0
    for problem in random_problems(11, effort.samples):
        value = float(formulas.regularizers["cokl"].value(problem.policy, problem.reference))
        exact = kl(problem.exact_reference.plus, problem.exact_policy.plus)
        worst = largest(worst, float(abs(mpf(value) - exact) / max(1, exact)))
    return [Evidence("float64 against 50 digits", f"{effort.samples} random pairs", worst, 1e-12)]


@claim(
    "cokl-equivalent-form",
    "CoKL = -E_ref+[log pi] + log Z - H(ref+), whose last term does not depend on pi",
    "Eq. 9 (appb-cokl-equivalent)",
)
def equivalent_form(formulas: Formulas, effort: Effort) -> list[Evidence]:
    worst = 0.0
    for problem in random_problems(12, effort.samples):
        values = {name: measured for name, (measured, _) in _values(formulas, problem).items()}
        plus = [prob for prob in problem.exact_reference.plus if prob > 0]
        entropy = -mpmath.fsum(prob * mpmath.log(prob) for prob in plus)
        parts = values["cokl_without_term2"] + values["cokl_without_term1"] - float(entropy)
        worst = largest(worst, abs(values["cokl"] - parts) / max(1.0, abs(values["cokl_without_term2"])))
    return [Evidence("float64", f"{effort.samples} random pairs", worst, 1e-12, "its two terms are the two ablations")]


@claim(
    "replay-identity",
    "KL(ref+ || pi) = KL(ref+ || pi+) - log Z: correct-only replay also rewards correctness mass",
    "unnumbered, below Eq. 9",
)
def replay_identity(formulas: Formulas, effort: Effort) -> list[Evidence]:
    identity, measured = mpf(0), 0.0
    for problem in random_problems(13, effort.samples):
        reference, policy = problem.exact_reference, problem.exact_policy
        replay = kl(reference.plus, policy.probs)
        split = kl(reference.plus, policy.plus) - mpmath.log(policy.mass)
        identity = largest(identity, abs(replay - split) / max(1, replay))
        values = _values(formulas, problem)
        difference = values["correct_forward_kl"][0] - values["cokl"][0] + values["cokl_without_term1"][0]
        measured = largest(measured, abs(difference) / float(max(1, replay)))
    domain = f"{effort.samples} random pairs"
    return [Evidence("50 digits", domain, float(identity), EXACT), Evidence("float64", domain, measured, 1e-12)]


def _finite_difference(definition, problem: Problem, action: int) -> mpf:
    """Central difference in one logit at 50 digits; its error is of order step^2."""
    step = mpf("1e-25")
    sides = []
    for sign in (1, -1):
        logits = [mpf(logit) for logit in problem.policy_logits]
        logits[action] += sign * step
        policy = ExactPolicy.from_logits(logits, problem.correct)
        sides.append(definition(policy, problem.exact_reference))
    return (sides[0] - sides[1]) / (2 * step)


@claim(
    "cokl-gradient",
    "grad CoKL = -E_ref+[grad log pi] + E_pi+[grad log pi]; with respect to the logits, pi+ - ref+",
    "Eq. 10 (appb-cokl-gradient)",
)
def gradient(formulas: Formulas, effort: Effort) -> list[Evidence]:
    scores, automatic, differences = 0.0, 0.0, 0.0
    cokl = formulas.regularizers["cokl"]
    for index, problem in enumerate(random_problems(14, effort.samples)):
        closed = cokl.logit_gradient(problem.policy, problem.reference)
        eye = torch.eye(len(problem.correct), dtype=torch.float64)
        score_rows = eye - problem.policy.probs  # row y: gradient of log pi(y) with respect to the logits
        plus_of = [
            policy.correct.add_to(torch.zeros_like(policy.logits), policy.conditional_probs)
            for policy in (problem.reference, problem.policy)
        ]
        scores = largest(scores, float((closed - (plus_of[1] - plus_of[0]) @ score_rows).abs().max()))
        logits = problem.policy.logits.clone().requires_grad_()
        cokl.value(Policy(logits, problem.policy.correct), problem.reference).backward()
        assert logits.grad is not None
        automatic = largest(automatic, float((closed - logits.grad).abs().max()))
        if index < effort.samples // 8:
            for action in range(len(problem.correct)):
                exact = _finite_difference(DEFINITIONS["cokl"], problem, action)
                differences = largest(differences, float(abs(mpf(float(closed[action])) - exact)))
    domain = f"{effort.samples} random pairs"
    return [
        Evidence("float64 expectation of scores", domain, scores, 1e-12),
        Evidence("autograd", domain, automatic, 1e-10),
        Evidence("finite differences at 50 digits", f"{effort.samples // 8} random pairs", differences, 1e-12),
    ]


@claim("log-mass-gradient", "grad log Z = E_pi+[grad log pi]", "Eq. appb-logz-expectation")
def log_mass_gradient(formulas: Formulas, effort: Effort) -> list[Evidence]:
    worst = 0.0
    for problem in random_problems(15, effort.samples):
        policy = problem.policy
        plus = policy.correct.add_to(torch.zeros_like(policy.logits), policy.conditional_probs)
        closed = formulas.regularizers["cokl_without_term1"].logit_gradient(policy, problem.reference)
        logits = policy.logits.clone().requires_grad_()
        Policy(logits, policy.correct).log_mass.backward()
        assert logits.grad is not None
        expectation = plus @ (torch.eye(len(plus), dtype=torch.float64) - policy.probs)
        worst = largest(worst, float((closed - logits.grad).abs().max()), float((closed - expectation).abs().max()))
    return [Evidence("autograd", f"{effort.samples} random policies", worst, 1e-10)]


@claim(
    "gradient-under-shared-parameters",
    "Eq. 10 holds for a policy whose parameters are shared between actions and contexts (a Tanh network)",
    "Eq. 10; the paper derives it for a general theta",
)
def shared_parameters(formulas: Formulas, effort: Effort) -> list[Evidence]:
    generator = torch.Generator().manual_seed(16)
    network = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 9)).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    worst = 0.0
    for problem in random_problems(16, max(effort.samples // 8, 2), actions=(9, 9)):
        x = torch.randn(6, generator=generator, dtype=torch.float64)
        policy, reference = Policy(network(x), problem.policy.correct), problem.reference
        direct = torch.autograd.grad(
            formulas.regularizers["cokl"].value(policy, reference), list(network.parameters()), retain_graph=True
        )
        weights = policy.conditional_probs.detach() - reference.conditional_probs
        scores = torch.autograd.grad((weights * policy.correct_log_probs).sum(), list(network.parameters()))
        worst = largest(worst, *(float((a - b).abs().max()) for a, b in zip(direct, scores, strict=True)))
    return [Evidence("autograd", "a 6-16-9 Tanh network, random contexts", worst, 1e-10)]


@claim(
    "every-regularizer-value-and-gradient",
    "every regularizer's float64 value is its definition, and its closed-form logit gradient is its derivative",
    BEYOND,
)
def every_regularizer(formulas: Formulas, effort: Effort) -> list[Evidence]:
    """The definitions are in `theory.definitions`; derivatives are central differences of them at 50 digits."""
    value_error, gradient_error = 0.0, 0.0
    definitions = {**DEFINITIONS, "restricted": restricted_reverse_kl}
    objects = {**formulas.regularizers, "restricted": formulas.restricted_reverse_kl}
    for problem in random_problems(17, max(effort.samples // 20, 4), actions=(3, 8)):
        for name, definition in definitions.items():
            value = float(objects[name].value(problem.policy, problem.reference))
            exact = definition(problem.exact_policy, problem.exact_reference)
            value_error = largest(value_error, float(abs(mpf(value) - exact) / max(1, abs(exact))))
            closed = objects[name].logit_gradient(problem.policy, problem.reference)
            for action in range(len(problem.correct)):
                difference = _finite_difference(definition, problem, action)
                gradient_error = largest(gradient_error, float(abs(mpf(float(closed[action])) - difference)))
    domain = f"{len(definitions)} regularizers, {max(effort.samples // 20, 4)} random pairs"
    return [
        Evidence("float64 against 50 digits", domain, value_error, 1e-12),
        Evidence("finite differences at 50 digits", domain, gradient_error, 1e-11),
    ]
