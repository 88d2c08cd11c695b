"""A claim refuses a false statement put in the place of its own."""

import math
from typing import Any

import pytest
import torch
from scipy.stats import binom, poisson

import theory.claims  # noqa: F401  registers them
from theory.claim import QUICK, registered_claims
from theory.claims import decoupling, finite_group, off_policy, other_regularizers
from theory.definitions import ExactPolicy
from theory.formulas import Formulas, recovery_slope


def holds(claim, **entries):
    """Whether a claim holds as it stands, with some formulas replaced."""
    return all(evidence.holds for evidence in registered_claims()[claim].check(Formulas(**entries), QUICK))


@pytest.mark.parametrize("rate", [0.5, 0.75, 0.9, 2])
def test_the_bias_vanishes_at_no_other_rate(monkeypatch, rate):
    monkeypatch.setattr(off_policy, "RATE", rate)
    assert not holds("off-policy-bias-of-self-normalization")


COUNTS = {
    "the incorrect responses": lambda size, mass: binom.pmf(range(size + 1), size, 1 - mass),
    "one response fewer": lambda size, mass: binom.pmf(range(size + 1), size - 1, mass),
    "Poisson of the same mean": lambda size, mass: poisson.pmf(range(size + 1), size * mass),
    "right at 0 alone": lambda size, mass: [(1 - mass) ** size, *[(1 - (1 - mass) ** size) / size] * size],
}


@pytest.mark.parametrize("statement", COUNTS)
def test_the_number_of_correct_responses_has_no_other_distribution(monkeypatch, statement):
    def stated(size, mass):
        return torch.tensor(COUNTS[statement](size, mass), dtype=torch.float64)

    monkeypatch.setattr(finite_group, "count_probabilities", stated)
    assert not holds("zero-correct-probability")


RECOVERIES: dict[str, dict[str, Any]] = {
    "increasing at first": {"recovery": lambda z, size: z * (1 - z)},
    "0 before Z = 1": {"recovery": lambda z, size: max(0.8 - z, 0)},
    "0 everywhere": {"recovery": lambda z, size: 0 * z},
    "not 0 at Z = 1": {"recovery": lambda z, size: 2 - z},
    "negative": {"recovery": lambda z, size: math.log(z)},
    "a rising slope": {"recovery_slope": lambda num, z, size: -recovery_slope(num, z, size)},
}


@pytest.mark.parametrize("statement", RECOVERIES)
def test_the_recovery_term_is_nothing_else_than_decreasing_to_0(statement):
    assert not holds("recovery-decreasing", **RECOVERIES[statement])


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("forward_kl", "cokl"),
        ("jensen_shannon", "cokl"),
        ("entropy", "correct_forward_kl"),
        ("entropy", "forward_kl"),
        ("cokl", "entropy"),
        ("correct_reverse_kl", "reverse_kl"),
        ("cokl_without_term1", "cokl_without_term2"),
    ],
)
def test_no_regularizer_has_the_gap_of_another(monkeypatch, name, like):
    stated = other_regularizers.OPTIMAL_MASS
    monkeypatch.setitem(stated, name, stated[like])
    assert not holds("regularizers-with-a-gap")


@pytest.mark.parametrize(
    "claim",
    [
        "off-policy-bias-of-self-normalization",
        "zero-correct-probability",
        "recovery-decreasing",
        "regularizers-with-a-gap",
        "conditional-penalties-decouple",
        "surrogate-is-linear-in-log-likelihoods",
        "floor-keeps-the-optimum",
    ],
)
def test_the_true_statements_hold(claim):
    assert holds(claim)


MAXIMIZERS = {
    "uniform on the correct actions": lambda reference: 0 * reference.plus + 1 / reference.correct,
    "the reference, Z = q": lambda reference: reference.q * reference.plus,
    "sharpened": lambda reference: reference.plus**2 / (reference.plus**2).sum(),
}


@pytest.mark.parametrize("statement", MAXIMIZERS)
def test_conditional_penalties_have_no_other_maximizer(monkeypatch, statement):
    monkeypatch.setattr(decoupling, "conditional_maximizer", MAXIMIZERS[statement])
    assert not holds("conditional-penalties-decouple")


SURROGATE_WEIGHTS = {
    "1 / G": lambda rewards: (-rewards / len(rewards), rewards / len(rewards)),
    "the incorrect responses": lambda rewards: tuple(sign * (1 - rewards) / len(rewards) for sign in (-1, 1)),
    "1 / (K + 1)": lambda rewards: tuple(sign * rewards / (rewards.sum() + 1) for sign in (-1, 1)),
    "the signs swapped": lambda rewards: tuple(sign * rewards / rewards.sum().clamp_min(1) for sign in (1, -1)),
}


@pytest.mark.parametrize("statement", SURROGATE_WEIGHTS)
def test_the_scores_have_no_other_weights(monkeypatch, statement):
    monkeypatch.setattr(finite_group, "stated_weights", SURROGATE_WEIGHTS[statement])
    assert not holds("surrogate-is-linear-in-log-likelihoods")


SURROGATE_VALUES = {
    "an estimate of log Z": lambda policy, size: float(policy.log_mass),
    "log Z where K > 0": lambda policy, size: float((1 - (1 - policy.mass) ** size) * policy.log_mass),
    "the mean under pi+ for every K": lambda policy, size: float(policy.conditional_probs @ policy.correct_log_probs),
}


@pytest.mark.parametrize("statement", SURROGATE_VALUES)
def test_term_2_has_no_other_value(monkeypatch, statement):
    monkeypatch.setattr(finite_group, "stated_value", SURROGATE_VALUES[statement])
    assert not holds("surrogate-is-linear-in-log-likelihoods")


FLOOR_MAXIMIZERS = {
    "Z* = q": lambda reference: (reference.mass, reference.conditional_log_probs),
    "uniform on the correct actions": lambda reference: (
        torch.ones(()).double(),
        torch.zeros_like(reference.conditional_log_probs).log_softmax(-1),
    ),
    "sharpened": lambda reference: (torch.ones(()).double(), (2 * reference.conditional_log_probs).log_softmax(-1)),
}


@pytest.mark.parametrize("statement", FLOOR_MAXIMIZERS)
def test_the_floor_has_no_other_optimum(monkeypatch, statement):
    monkeypatch.setattr(other_regularizers, "floor_maximizer", FLOOR_MAXIMIZERS[statement])
    assert not holds("floor-keeps-the-optimum")


GATES = {
    "open on both sides of q": lambda q, mass: (q - mass).abs(),
    "always closed": lambda q, mass: 0 * q,
    "relative to q": lambda q, mass: (1 - mass / q).clamp_min(0),
    "closed from q / 2 on": lambda q, mass: (q / 2 - mass).clamp_min(0),
}


@pytest.mark.parametrize("statement", GATES)
def test_the_floor_has_no_other_gate(monkeypatch, statement):
    monkeypatch.setattr(other_regularizers, "floor_gate", GATES[statement])
    assert not holds("floor-keeps-the-optimum")


def test_the_conditionals_are_not_the_unconditioned_probabilities(monkeypatch):
    monkeypatch.setattr(ExactPolicy, "plus", property(lambda policy: policy.probs))
    assert not holds("correctness-parameterization")
