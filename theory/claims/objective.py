"""Eqs. 8-10 and the first half of Appendix B: CoKL's equivalent form, the replay identity and the gradient."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import torch
from mpmath import mpf
from torch import Tensor

from cokl.policy import Policy
from theory import formulas
from theory.claim import Effort, Evidence, claim, largest, worst_of_each, worst_over
from theory.claims.decomposition import EXACT
from theory.definitions import Problem, kl, random_problems


def _value(name: str, problem: Problem) -> float:
    """What the toolkit gives for a regularizer, in nats."""
    return float(formulas.regularizers[name].value(problem.policy, problem.reference))


@claim("cokl-definition", "Eq. 8 (appb-cokl-definition)", place="Eq. 8")
def definition(effort: Effort) -> list[Evidence]:
    """the toolkit's CoKL is KL(ref+ || pi+)"""

    def error(problem: Problem) -> mpf:
        exact = kl(problem.exact_reference.plus, problem.exact_policy.plus)
        return abs(mpf(_value("cokl", problem)) - exact) / max(1, exact)

    worst = worst_over(random_problems(11, effort.samples), error)
    return [Evidence("float64 against 50 digits", f"{effort.samples} random pairs", worst, 1e-12)]


@claim("cokl-equivalent-form", "Eq. 9 (appb-cokl-equivalent)", place="Eq. 9")
def equivalent_form(effort: Effort) -> list[Evidence]:
    """CoKL = -E_ref+[log pi] + log Z - H(ref+), whose last term does not depend on pi"""

    def error(problem: Problem) -> float:
        cokl, log_mass = (_value(name, problem) for name in ("cokl", "cokl_without_term1"))
        pairs = [(p, x) for p, x in zip(problem.exact_reference.plus, problem.exact_policy.probs, strict=True) if p > 0]
        cross_entropy = -mpmath.fsum(p * mpmath.log(x) for p, x in pairs)
        entropy = -mpmath.fsum(p * mpmath.log(p) for p, _ in pairs)
        return float(abs(cokl - (cross_entropy + log_mass - entropy)) / max(1, cross_entropy))

    worst = worst_over(random_problems(12, effort.samples), error)
    return [Evidence("float64", f"{effort.samples} random pairs", worst, 1e-12, "the toolkit's CoKL and log Z")]


@claim("replay-identity", "unnumbered, below Eq. 9", place="below Eq. 9")
def replay_identity(effort: Effort) -> list[Evidence]:
    """KL(ref+ || pi) = KL(ref+ || pi+) - log Z: correct-only replay also rewards correctness mass"""

    def errors(problem: Problem) -> tuple[mpf, float]:
        reference, policy = problem.exact_reference, problem.exact_policy
        replay = kl(reference.plus, policy.probs)
        split = kl(reference.plus, policy.plus) - mpmath.log(policy.mass)
        names = "correct_forward_kl", "cokl", "cokl_without_term1"
        measured, cokl, log_mass = (_value(name, problem) for name in names)
        difference = measured - cokl + log_mass
        return abs(replay - split) / max(1, replay), abs(difference) / float(max(1, replay))

    identity, measured = worst_of_each(random_problems(13, effort.samples), errors)
    domain = f"{effort.samples} random pairs"
    return [Evidence("50 digits", domain, identity, EXACT), Evidence("float64", domain, measured, 1e-12)]


def _scores(policy: Policy) -> Tensor:
    """(A, A): in row y the gradient of log pi(y) with respect to the logits."""
    return torch.eye(len(policy.logits), dtype=torch.float64) - policy.probs


def _dense_conditional(policy: Policy) -> Tensor:
    """(A,): pi+ with its zeros."""
    return policy.correct.add_to(torch.zeros_like(policy.logits), policy.conditional_probs)


def _logit_gradient(value: Callable[[Policy], Tensor], policy: Policy) -> Tensor:
    """(A,): by autograd."""
    logits = policy.logits.clone().requires_grad_()
    return torch.autograd.grad(value(Policy(logits, policy.correct)), logits)[0]


@claim("cokl-gradient", "Eq. 10 (appb-cokl-gradient)", place="Eq. 10")
def gradient(effort: Effort) -> list[Evidence]:
    """grad CoKL = -E_ref+[grad log pi] + E_pi+[grad log pi]; with respect to the logits, pi+ - ref+"""
    cokl = formulas.regularizers["cokl"]

    def errors(problem: Problem) -> tuple[float, float]:
        closed = cokl.logit_gradient(problem.policy, problem.reference)
        current, reference = (_dense_conditional(policy) for policy in (problem.policy, problem.reference))
        automatic = _logit_gradient(lambda policy: cokl.value(policy, problem.reference), problem.policy)
        by_scores = (current - reference) @ _scores(problem.policy)
        return float((closed - by_scores).abs().max()), float((closed - automatic).abs().max())

    scores, automatic = worst_of_each(random_problems(14, effort.samples), errors)
    domain = f"{effort.samples} random pairs"
    return [
        Evidence("float64 expectation of scores", domain, scores, 1e-12),
        Evidence("autograd", domain, automatic, 1e-10),
    ]


@claim("log-mass-gradient", "Eq. appb-logz-expectation", place="Appendix B")
def log_mass_gradient(effort: Effort) -> list[Evidence]:
    """grad log Z = E_pi+[grad log pi]"""

    def error(problem: Problem) -> float:
        policy = problem.policy
        closed = formulas.regularizers["cokl_without_term1"].logit_gradient(policy, problem.reference)
        automatic = _logit_gradient(lambda moved: moved.log_mass, policy)
        expectation = _dense_conditional(policy) @ _scores(policy)
        return float(largest((closed - automatic).abs().max(), (closed - expectation).abs().max()))

    worst = worst_over(random_problems(15, effort.samples), error)
    return [Evidence("autograd", f"{effort.samples} random policies", worst, 1e-10)]


def tanh_network(generator: torch.Generator, actions: int) -> tuple[torch.nn.Module, list[torch.nn.Parameter]]:
    """A 6-16-A network with standard normal parameters, from inputs (6,) to logits (A,), and its parameters."""
    network = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, actions)).double()
    parameters = list(network.parameters())
    with torch.no_grad():
        for parameter in parameters:
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return network, parameters


@claim("gradient-under-shared-parameters", "Eq. 10; the paper derives it for a general theta", place="Eq. 10")
def shared_parameters(effort: Effort) -> list[Evidence]:
    """Eq. 10 holds for a policy whose parameters are shared between actions and contexts (a Tanh network)"""
    generator = torch.Generator().manual_seed(16)
    network, parameters = tanh_network(generator, 9)

    def error(problem: Problem) -> float:
        x = torch.randn(6, generator=generator, dtype=torch.float64)
        policy, reference = Policy(network(x), problem.policy.correct), problem.reference
        direct = torch.autograd.grad(
            formulas.regularizers["cokl"].value(policy, reference), parameters, retain_graph=True
        )
        weights = policy.conditional_probs.detach() - reference.conditional_probs
        scores = torch.autograd.grad((weights * policy.correct_log_probs).sum(), parameters)
        return largest(*(float((a - b).abs().max()) for a, b in zip(direct, scores, strict=True)))

    worst = worst_over(random_problems(16, max(effort.samples // 8, 2), actions=(9, 9)), error)
    return [Evidence("autograd", "a 6-16-9 Tanh network, random contexts", worst, 1e-10)]
