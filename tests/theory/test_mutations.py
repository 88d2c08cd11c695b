"""A wrong formula, planted where the paper or the toolkit has the right one, is caught by a claim."""

import dataclasses
import inspect
import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cokl import groups
from cokl.policy import expectation
from cokl.regularizers.base import Regularizer
from cokl.regularizers.cokl import CoKL
from cokl.regularizers.correct_forward_kl import CorrectForwardKL
from cokl.regularizers.correct_reverse_kl import CorrectReverseKL
from theory import formulas
from theory.claim import BOXES, QUICK
from theory.claims import registered_claims
from theory.report import check_claims

CLAIMS = registered_claims()
ENTRIES = [
    name
    for name, value in vars(formulas).items()
    if name == "regularizers" or (inspect.isfunction(value) and not name.startswith("_"))
]
right = SimpleNamespace(**{name: getattr(formulas, name) for name in ENTRIES})
"""What is put back, and what a wrong version may call: the module's own name would be its own."""


def with_regularizer(regularizer):
    """One registered regularizer replaced by `regularizer`, of the same name."""
    return {"regularizers": {**right.regularizers, regularizer.name: regularizer}}


METHODS = ("value", "logit_gradient", "optimal_mass", "surrogate_weights")


def rescaled(value: Any, factor: float) -> Any:
    """`factor` times a result, or times each of its parts."""
    if value is None:
        return None
    if hasattr(value, "_replace"):
        return value._replace(**{name: rescaled(part, factor) for name, part in value._asdict().items()})
    return value * factor


def rescaled_regularizer(regularizer, methods, factor):
    """A regularizer some of whose methods return `factor` times what they should."""
    right = {name: getattr(regularizer, name) for name in METHODS}
    wrong = {name: lambda *a, name=name, **k: rescaled(right[name](*a, **k), factor) for name in methods}
    return SimpleNamespace(name=regularizer.name, **{**right, **wrong})


def with_rescaled(name, method, factor):
    """One method of the registered regularizer `name` rescaled."""
    return with_regularizer(rescaled_regularizer(right.regularizers[name], (method,), factor))


class SwappedCoKL(CoKL):
    def value(self, policy, reference):
        return expectation(policy.conditional_probs, policy.conditional_log_probs - reference.conditional_log_probs)


class UnconditionedCoKL(CoKL):
    def value(self, policy, reference):
        return expectation(reference.conditional_probs, reference.conditional_log_probs - policy.correct_log_probs)


class WrongSignCoKL(CoKL):
    def logit_gradient(self, policy, reference):
        return -super().logit_gradient(policy, reference)


class FullScoreCoKL(CoKL):
    def logit_gradient(self, policy, reference):
        return CorrectForwardKL().logit_gradient(policy, reference)


class UnbalancedCoKL(CoKL):
    def surrogate_weights(self, reference, rollout, config):
        weights = super().surrogate_weights(reference, rollout, config)
        assert weights.rollout is not None
        return groups.SurrogateWeights(weights.reference, 0.9 * weights.rollout)


class UnnormalisedCoKL(CoKL):
    def surrogate_weights(self, reference, rollout, config):
        weights = super().surrogate_weights(reference, rollout, config)
        return groups.SurrogateWeights(weights.reference, rollout.rewards / rollout.rewards.shape[-1])


class SelfCentredCorrectReverseKL(CorrectReverseKL):
    def surrogate_weights(self, reference, rollout, config):
        weights = super().surrogate_weights(reference, rollout, config)
        counts = rollout.rewards.sum(-1, keepdim=True).clamp_min(1)
        return groups.SurrogateWeights(None, weights.rollout * (counts - 1) / counts)


class UnnormalisedReplay(CorrectForwardKL):
    def surrogate_weights(self, reference, rollout, config):
        return groups.SurrogateWeights(-reference.rewards / reference.rewards.shape[-1], None)


def unclipped_weights(responses, epsilon_is):
    weights = unclipped(responses, epsilon_is) * responses.rewards
    return weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)


def ungated_floor(reference, rollout):
    gate = (reference.rewards.mean() - rollout.rewards.mean()).abs()
    return -gate * reference.rewards / reference.rewards.shape[-1]


def swapped_decomposition(source, target):
    parts = right.decompose_kl(source, target)
    return parts._replace(correct=parts.incorrect, incorrect=parts.correct)


def unweighted_decomposition(source, target):
    parts = right.decompose_kl(source, target)
    return parts._replace(correct=parts.correct / source.mass)


def finite_where_the_target_is_certain(source, target):
    parts = right.decompose_kl(source, target)
    return parts._replace(mass=torch.zeros(()), incorrect=torch.zeros(())) if target.mass == 1 else parts


def unclipped(responses, epsilon_is):
    return (responses.log_probs - responses.behavior_log_probs).exp()


def symmetric_clip(responses, epsilon_is):
    bound = float(np.log1p(epsilon_is))
    return (responses.log_probs - responses.behavior_log_probs).clamp(-bound, bound).exp()


MUTANTS = [
    # a sign
    ("forward-kl-optimum", dict(forward_kl_optimum=lambda n, q, b: (1 - b - n.sqrt((b - 1) ** 2 + 4 * b * q)) / 2)),
    ("forward-kl-optimum", dict(forward_kl_optimum=lambda n, q, b: (1 + b + n.sqrt((b - 1) ** 2 + 4 * b * q)) / 2)),
    ("reverse-kl-optimum", dict(reverse_kl_optimum=lambda n, q, b: right.reverse_kl_optimum(n, q, -b))),
    ("full-kl-strict-concavity", dict(forward_kl_curvature=lambda *a: -right.forward_kl_curvature(*a))),
    ("full-kl-derivatives", dict(forward_kl_curvature=lambda n, z, y, q, p, b: -b * (q / z**2 - p / y**2))),
    ("forward-kl-coefficient", dict(forward_kl_coefficient_slope=lambda n, w, q, p: -(w**2 - q * p) / w**2)),
    ("forward-kl-unique-root", dict(forward_kl_root_product=lambda n, q, b: b * q)),
    ("recovery-decreasing", dict(recovery=lambda z, g: 0 * z)),
    ("recovery-decreasing", dict(recovery=lambda z, g: max(0.8 - z, 0))),
    ("recovery-decreasing", dict(recovery=lambda z, g: z * (1 - z))),
    ("recovery-decreasing", dict(recovery=lambda z, g: 2 - z)),
    ("recovery-decreasing", dict(recovery_slope=lambda *a: -right.recovery_slope(*a))),
    (
        "recovery-series",
        dict(recovery_closed_form=lambda n, z, g: -n.log(z) + sum((1 - z) ** m / m for m in range(1, g + 1))),
    ),
    ("finite-group-optimum", dict(finite_objective_slope=lambda n, z, g, b: 1 - b * (1 - z) ** g / z)),
    ("reverse-kl-optimum-slope", dict(reverse_kl_optimum_slope=lambda n, z, y, b: z * y / b**2)),
    ("cokl-gradient", with_regularizer(WrongSignCoKL())),
    # a factor
    ("forward-kl-optimum", dict(forward_kl_optimum=lambda n, q, b: (1 - b + n.sqrt((b - 1) ** 2 + 2 * b * q)) / 2)),
    ("reverse-kl-optimum", dict(reverse_kl_optimum=lambda n, q, b: right.reverse_kl_optimum(n, q, b / 2))),
    ("reverse-kl-optimum-slope", dict(reverse_kl_optimum_slope=lambda n, z, y, b: -z * y / b)),
    ("full-kl-gap", dict(forward_kl_gap=lambda n, q, p, b: right.forward_kl_gap(n, q, p, b) / 2)),
    ("full-kl-monotone", dict(forward_kl_optimum_slope=lambda *a: 2 * right.forward_kl_optimum_slope(*a))),
    ("full-kl-limit-large-beta", dict(forward_kl_excess_rate=lambda *a: 2 * right.forward_kl_excess_rate(*a))),
    ("full-kl-limit-small-beta", dict(forward_kl_gap_rate=lambda *a: 2 * right.forward_kl_gap_rate(*a))),
    (
        "jensen-shannon-optimum",
        dict(jensen_shannon_optimum=lambda n, q, b: right.jensen_shannon_optimum(n, q, 2 * b)),
    ),
    ("forward-decomposition", dict(decompose_kl=unweighted_decomposition)),
    ("finite-group-gradient", with_regularizer(UnbalancedCoKL())),
    ("finite-group-gradient", with_regularizer(UnnormalisedCoKL())),
    ("score-function-surrogates-unbiased", with_regularizer(UnnormalisedReplay())),
    ("correct-reverse-kl-shrinkage", with_regularizer(SelfCentredCorrectReverseKL())),
    (
        "jensen-shannon-optimum",
        dict(jensen_shannon_slope=lambda n, z, q, b: 2 * right.jensen_shannon_slope(n, z, q, b) - 1),
    ),
    # a swapped argument
    ("forward-decomposition", dict(bernoulli_kl=lambda n, a, b: right.bernoulli_kl(n, b, a))),
    ("decomposition-boundary-rates", dict(bernoulli_kl=lambda n, a, b: right.bernoulli_kl(n, b, a))),
    ("cokl-definition", with_regularizer(SwappedCoKL())),
    ("reverse-decomposition", dict(decompose_kl=swapped_decomposition)),
    ("decomposition-by-response-set", dict(decompose_kl=lambda s, t: right.decompose_kl(t, s))),
    ("decomposition-boundaries", dict(decompose_kl=finite_where_the_target_is_certain)),
    ("entropy-optimum", dict(entropy_optimum=lambda n, c, b: right.entropy_optimum(n, 1 - c, b))),
    ("full-kl-gap", dict(reverse_kl_gap=lambda n, q, p, b: right.reverse_kl_gap(n, p, q, b))),
    ("forward-kl-coefficient", dict(forward_kl_coefficient=lambda n, z, q: q * (1 - q) / (z - q))),
    ("recovery-bounds", dict(recovery_lower=right.recovery_upper, recovery_upper=right.recovery_lower)),
    # what should and should not be conditioned on correctness
    ("replay-identity", with_regularizer(UnconditionedCoKL())),
    ("cokl-gradient", with_regularizer(FullScoreCoKL())),
    ("cokl-exact-difference", with_regularizer(UnconditionedCoKL())),
    ("no-reward-on-the-regularized-prompts", with_rescaled("cokl_without_term1", "logit_gradient", -1)),
    # off by one in G
    ("recovery-series", dict(recovery=lambda z, g: right.recovery(z, g + 1))),
    ("recovery-series", dict(recovery_closed_form=lambda n, z, g: right.recovery_closed_form(n, z, g - 1))),
    ("recovery-derivative", dict(recovery_slope=lambda n, z, g: right.recovery_slope(n, z, g + 1))),
    ("finite-group-gradient", dict(positive_count_probability=lambda n, z, g: 1 - (1 - z) ** (g - 1))),
    ("zero-correct-probability", dict(zero_correct_probability=lambda z, g: (1 - z) ** (g + 1))),
    ("finite-group-gradient-recovery-form", dict(recovery_derivative=lambda z, g: -((1 - z) ** (g - 1)) / z)),
    (
        "recovery-derivative",
        dict(recovery_derivative=lambda z, g: (1 + 1e-9) * right.recovery_derivative(z, g)),
    ),
    (
        "finite-group-optimum",
        dict(finite_objective_slope=lambda n, z, g, b: right.finite_objective_slope(n, z, g + 1, b)),
    ),
    (
        "without-term1-finite-group",
        dict(without_term1_threshold=lambda n, g: right.without_term1_threshold(n, g - 1) if g > 1 else 2),
    ),
    (
        "correct-reverse-kl-shrinkage",
        dict(pair_probability=lambda n, z, g: 1 - (1 - z) ** g - z * (1 - z) ** (g - 1)),
    ),
    ("off-policy-gate", dict(zero_correct_probability=lambda z, g: (1 - z) ** (g + 1))),
    ("full-kl-derivatives", dict(forward_kl_slope=lambda n, z, q, b: 1 - b * (z - q) / z)),
    ("full-kl-gap", dict(forward_kl_excess=lambda n, q, p, b: right.forward_kl_excess(n, q, p, b) / p)),
    ("full-kl-derivatives", dict(reverse_kl_slope=lambda n, z, q, b: 1 - b * n.log(z / q))),
    ("full-kl-derivatives", dict(reverse_kl_curvature=lambda n, z, y, q, p, b: -b / z)),
    ("full-kl-gap", dict(reverse_kl_excess=lambda n, q, p, b: right.reverse_kl_excess(n, q, p, b / 2))),
    ("full-kl-limit-small-beta", dict(reverse_kl_gap_rate=lambda n, q, p, e: 1 / q)),
    (
        "jensen-shannon-gap",
        dict(jensen_shannon_excess=lambda n, q, p, b: right.jensen_shannon_excess(n, q, p, 2 * b)),
    ),
    ("jensen-shannon-gap", dict(jensen_shannon_gap=lambda n, q, p, b: right.jensen_shannon_gap(n, q, p, b) / 2)),
    (
        "without-term1-finite-group",
        dict(without_term1_finite_slope=lambda n, z, g, b: right.without_term1_finite_slope(n, z, g + 1, b)),
    ),
    ("conditional-weights-mean", dict(reference_weights=lambda groups: groups.rewards / groups.rewards.shape[-1])),
    ("off-policy-bias-of-clipping", dict(rollout_weights=unclipped_weights)),
    (
        "off-policy-bias-of-self-normalization",
        dict(rollout_weights=lambda responses, epsilon_is: groups.rollout_weights(responses, 0.2)),
    ),
    (
        "floor-is-not-a-mass-constraint",
        dict(floor_value=lambda policy, reference: right.floor_value(policy, reference) / reference.mass),
    ),
    (
        "floor-keeps-the-optimum",
        dict(floor_logit_gradient=lambda policy, reference: torch.ones_like(policy.logits)),
    ),
    ("floor-keeps-the-optimum", dict(sampled_floor_weights=ungated_floor)),
    # claims that look at one thing alone
    ("bernoulli-term-nonnegative", dict(bernoulli_kl=lambda n, a, b: right.bernoulli_kl(n, a, b) / 2)),
    ("cokl-equivalent-form", with_regularizer(UnconditionedCoKL())),
    ("log-mass-gradient", with_rescaled("cokl_without_term1", "logit_gradient", -1)),
    ("importance-identities", with_rescaled("cokl_without_term1", "logit_gradient", 0.5)),
    ("gradient-under-shared-parameters", with_regularizer(UnconditionedCoKL())),
    ("cokl-unique-maximizer", with_rescaled("cokl", "value", 0.01)),
    ("cokl-maximum", with_rescaled("cokl", "optimal_mass", 0.9)),
    ("recovery-limit-not-uniform", dict(recovery=lambda z, g: right.recovery(z, 2 * g))),
    ("finite-group-gradient-on-a-network", with_regularizer(UnnormalisedCoKL())),
    ("unfiltered-reference-groups", with_regularizer(UnbalancedCoKL())),
    ("cached-references-are-the-target", with_rescaled("cokl", "surrogate_weights", -1)),
    ("surrogate-is-linear-in-log-likelihoods", with_regularizer(UnnormalisedCoKL())),
    ("on-policy-point", with_regularizer(UnnormalisedCoKL())),
    (
        "jensen-shannon-monotone",
        dict(jensen_shannon_slope=lambda n, z, q, b: 2 * right.jensen_shannon_slope(n, z, q, b)),
    ),
    ("without-term1-unbounded", with_rescaled("cokl_without_term1", "value", 0.5)),
    ("no-reward-on-the-regularized-prompts", with_regularizer(FullScoreCoKL())),
    # clipping and precision
    ("clipped-ratio", dict(importance_ratios=unclipped)),
    ("clipped-ratio", dict(importance_ratios=symmetric_clip)),
]


def planted(monkeypatch, wrong):
    """The module with these entries in the place of its own."""
    for name, entry in wrong.items():
        monkeypatch.setattr(formulas, name, entry)


@pytest.mark.parametrize(("claim", "wrong"), MUTANTS)
def test_wrong_formula_is_caught(monkeypatch, claim, wrong):
    """Caught means shown to be wrong: boxes that a small budget leaves undecided would say so of a right one too."""
    planted(monkeypatch, wrong)
    with np.errstate(all="ignore"):
        (result,) = check_claims([CLAIMS[claim]], dataclasses.replace(QUICK, boxes=2000))
    assert any(piece.method != BOXES or piece.error == math.inf for piece in result.evidence if not piece.holds)


def test_an_objective_that_sees_the_incorrect_actions_is_caught(monkeypatch):
    """At 50 digits too, where no formula can be planted: the objective itself is the definition."""
    from theory.claims import decoupling

    def seeing(policy, reference, beta):
        return decoupling.kl(reference.plus, policy.plus) + max(policy.minus) / 10**20

    monkeypatch.setattr(decoupling, "objective", seeing)
    exact, float64 = CLAIMS["cokl-ignores-incorrect-conditional"].check(QUICK)
    assert (exact.holds, float64.holds) == (False, True)


def test_every_entry_has_a_mutant():
    """A new entry without a wrong version of it, and a claim that catches it, fails here."""
    assert {name for _, wrong in MUTANTS for name in wrong} == {*ENTRIES}


def poisoned_regularizer(regularizer, methods=METHODS):
    """A regularizer some of whose methods return NaN."""
    return rescaled_regularizer(regularizer, methods, math.nan)


def poisoned_entry(entry):
    if isinstance(entry, Mapping):
        return {name: poisoned_regularizer(regularizer) for name, regularizer in entry.items()}
    if isinstance(entry, Regularizer):
        return poisoned_regularizer(entry)
    return lambda *arguments: rescaled(entry(*arguments), math.nan)


FEW_BOXES = dataclasses.replace(QUICK, samples=8, boxes=20, largest_group=8)


def refused(claim):
    """Whether a claim refuses what is planted for another reason than boxes left undecided, where it has another."""
    with np.errstate(all="ignore"):
        (result,) = check_claims([CLAIMS[claim]], FEW_BOXES)
    judged = [piece for piece in result.evidence if piece.method != BOXES] or result.evidence
    return any(not piece.holds for piece in judged)


@pytest.mark.parametrize("claim", [name for name in CLAIMS if name != "correctness-parameterization"])
def test_no_claim_holds_of_nan(monkeypatch, claim):
    """Whatever the formulas say. The parameterization's claim is about `Policy` alone."""
    planted(monkeypatch, {name: poisoned_entry(entry) for name, entry in vars(right).items()})
    assert refused(claim)


CAUGHT_BY = {name: claim for claim, wrong in MUTANTS for name in wrong}


@pytest.mark.parametrize("entry", [name for name in ENTRIES if name != "regularizers"])
def test_an_entry_that_is_nan_is_caught(monkeypatch, entry):
    planted(monkeypatch, {entry: poisoned_entry(getattr(right, entry))})
    assert refused(CAUGHT_BY[entry])


SURROGATES = {
    "cokl": "finite-group-gradient",
    "correct_reverse_kl": "correct-reverse-kl-shrinkage",
    "cokl_without_term1": "without-term1-finite-group",
}


@pytest.mark.parametrize("name", right.regularizers)
def test_a_surrogate_that_is_nan_is_caught(monkeypatch, name):
    planted(monkeypatch, with_regularizer(poisoned_regularizer(right.regularizers[name], ("surrogate_weights",))))
    assert refused(SURROGATES.get(name, "score-function-surrogates-unbiased"))
