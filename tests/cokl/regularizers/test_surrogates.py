"""Sampled surrogates: hand-enumerated weights, and exact expectations over all groups of small action spaces."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor

from cokl import regularizers
from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights, surrogate_loss
from cokl.policy import CorrectSet, Policy
from cokl.regularizers import Regularizer
from tests.cokl.cases import VARIANTS, assert_close, every_regularizer

CONFIG = SurrogateConfig(epsilon_is=0.2)

# Rollouts of a behaviour policy that the current one has left: ratios 10 and 0.01 are clipped to 1.2 and 0.8.
RATIOS = [[10.0, 0.01, 5.0, 1.0], [1.1, 1.0, 1.0, 0.9], [1.0, 10.0, 1.0, 1.0], [0.01, 10.0, 1.0, 0.9]]
VERDICTS = [[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1]]
LOG_RATIOS_TO_REFERENCE = [[0.0, 0.3, 2.0, 0.6], [1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [0.0, 0.0, 0.0, 1.0]]
ALPHA: list[list[float]] = [[1 / 3, 1 / 3, 0, 1 / 3], [0, 0, 0, 0], [0, 1, 0, 0], [1 / 4, 1 / 4, 1 / 4, 1 / 4]]
GAMMA: list[list[float]] = [
    [1.2 / 3, 0.8 / 3, 0, 1 / 3],
    [0, 0, 0, 0],
    [0, 1, 0, 0],
    [0.8 / 3.9, 1.2 / 3.9, 1 / 3.9, 0.9 / 3.9],
]


def matrix(rows: Sequence[Sequence[float]]) -> Tensor:
    """(N, G) float64."""
    return torch.tensor(rows, dtype=torch.float64)


def groups_of(ratios: Sequence[Sequence[float]] | None) -> ResponseGroups:
    """The groups above with current over behaviour probabilities `ratios`, or on-policy."""
    log_probs = -torch.arange(5, 21, dtype=torch.float64).reshape(4, 4)
    behavior = None if ratios is None else log_probs - matrix(ratios).log()
    reference = log_probs - matrix(LOG_RATIOS_TO_REFERENCE)
    return ResponseGroups(log_probs.requires_grad_(), matrix(VERDICTS), behavior, reference)


def weights_of(variant: str, ratios: Sequence[Sequence[float]] | None = RATIOS) -> SurrogateWeights:
    """Surrogate weights for the hand-written groups, on the reference and on the rollout stream."""
    weights = VARIANTS[variant].surrogate_weights(groups_of(None), groups_of(ratios), CONFIG)
    assert weights is not None
    return weights


@pytest.mark.parametrize("variant", ["cokl", "correct_forward_kl"])
def test_reference_weights_are_minus_alpha(variant: str):
    weights = weights_of(variant)
    assert weights.reference is not None
    assert_close(weights.reference, -matrix(ALPHA), 1e-15)
    assert (weights.rollout is None) == (variant != "cokl")


@pytest.mark.parametrize("variant", ["cokl", "cokl_without_term1"])
@pytest.mark.parametrize(("ratios", "expected"), [(None, ALPHA), ([[1.0] * 4] * 4, ALPHA), (RATIOS, GAMMA)])
def test_rollout_weights_are_gamma_and_delta_at_the_point_of_sampling(
    variant: str, ratios: list[list[float]] | None, expected: list[list[float]]
):
    weights = weights_of(variant, ratios)
    assert weights.rollout is not None
    assert_close(weights.rollout, matrix(expected), 1e-15)
    assert (weights.reference is None) == (variant != "cokl")


@pytest.mark.parametrize("epsilon_is", [0.05, 0.5, 0.999])
def test_both_clip_ends_follow_epsilon(epsilon_is: float):
    """Of two correct responses one is far more and one far less likely than when it was sampled."""
    log_probs = matrix([[-50.0, -50.0]])
    rollout = ResponseGroups(log_probs, matrix([[1, 1]]), log_probs + matrix([[-50.0, 50.0]]))
    weights = VARIANTS["cokl"].surrogate_weights(rollout, rollout, SurrogateConfig(epsilon_is))
    assert weights is not None
    assert weights.rollout is not None
    assert_close(weights.rollout, matrix([[(1 + epsilon_is) / 2, (1 - epsilon_is) / 2]]), 1e-15)


def test_full_forward_kl_weighs_every_reference_response_equally():
    weights = weights_of("forward_kl")
    assert weights.rollout is None
    assert weights.reference is not None
    assert_close(weights.reference, matrix([[-1 / 4] * 4] * 4), 0)


# One on-policy group each, costs by hand: (cost - mean of the other costs) / 4.
@pytest.mark.parametrize(
    ("variant", "row", "expected"),
    [
        ("reverse_kl", 1, [-0.5, -1 / 6, 1 / 6, 0.5]),
        ("entropy", 0, [0.5, 1 / 6, -1 / 6, -0.5]),
        ("correct_reverse_kl", 0, [-0.3 / 2, 0, 0, 0.3 / 2]),
        ("correct_reverse_kl", 1, [0, 0, 0, 0]),
        ("correct_reverse_kl", 2, [0, 0, 0, 0]),
        ("correct_reverse_kl", 3, [-1 / 12, -1 / 12, -1 / 12, 1 / 4]),
    ],
)
def test_score_function_weights_by_hand(variant: str, row: int, expected: list[float]):
    weights = weights_of(variant, None)
    assert weights.reference is None
    assert weights.rollout is not None
    assert_close(weights.rollout[row], expected, 1e-15)


def test_jensen_shannon_costs_by_hand():
    """Ratios pi / pi_ref of 3 and 1/3 cost log(3/2) / 2 and log(1/2) / 2."""
    log_probs = matrix([[-1.0, -2.0]])
    rollout = ResponseGroups(log_probs, matrix([[0, 0]]), None, log_probs - matrix([[math.log(3), -math.log(3)]]))
    weights = VARIANTS["jensen_shannon"].surrogate_weights(None, rollout, CONFIG)
    assert weights is not None
    assert weights.rollout is not None
    assert_close(weights.rollout, matrix([[math.log(3) / 4, -math.log(3) / 4]]), 1e-15)


@pytest.mark.parametrize("variant", ["reverse_kl", "jensen_shannon", "correct_reverse_kl"])
def test_a_missing_reference_likelihood_is_named(variant: str):
    rollout = ResponseGroups(matrix([[0.0]]), matrix([[1]]))
    with pytest.raises(ValueError, match="reference_log_probs: this regularizer needs"):
        VARIANTS[variant].surrogate_weights(None, rollout, CONFIG)


class SmallSpace:
    """A policy and a reference on three actions, and their groups of `size` responses."""

    def __init__(self, correct: list[bool], size: int) -> None:
        self.correct = correct
        self.size = size
        self.logits = torch.tensor([0.4, -0.9, 0.1], dtype=torch.float64, requires_grad=True)
        correct_set = CorrectSet.from_mask(torch.tensor(correct))
        self.policy = Policy(self.logits, correct_set)
        self.reference = Policy(torch.tensor([-0.2, 0.7, 0.3], dtype=torch.float64), correct_set)

    def groups(self, sampler: Policy, needs_correct: bool) -> Iterator[tuple[float, ResponseGroups]]:
        """Every group that `sampler` can draw, with its probability; only those with a correct response on demand."""
        probs = sampler.probs.tolist()
        kept = []
        for actions in itertools.product(range(3), repeat=self.size):
            if needs_correct and not any(self.correct[action] for action in actions):
                continue
            kept.append((math.prod(probs[action] for action in actions), torch.tensor([actions])))
        total = sum(probability for probability, _ in kept)
        for probability, group in kept:
            rewards = torch.tensor(self.correct)[group].double()
            yield (
                probability / total,
                ResponseGroups(self.policy.log_probs[group], rewards, None, self.reference.log_probs[group]),
            )

    def expected_gradient(self, regularizer: Regularizer) -> Tensor:
        """Expectation of the surrogate's gradient over all pairs of a reference group and an on-policy group."""
        rollouts = list(self.groups(self.policy, needs_correct=False))
        expected = torch.zeros((), dtype=torch.float64)
        for reference_probability, reference in self.groups(self.reference, needs_correct=regularizer.conditional):
            for probability, rollout in rollouts:
                weights = regularizer.surrogate_weights(reference, rollout, CONFIG)
                expected = expected + reference_probability * probability * surrogate_loss(weights, reference, rollout)
        return torch.autograd.grad(expected, self.logits)[0]

    def log_mass_gradient(self) -> Tensor:
        """Gradient of log Z, pi+ - pi."""
        return torch.autograd.grad(self.policy.log_mass, self.logits, retain_graph=True)[0]

    def recovery_term(self) -> Tensor:
        """R_G(Z) in closed form (Appendix B, Finite-Group Correctness-Recovery Property)."""
        mass = self.policy.correct_probs.sum(-1)
        return -mass.log() - sum((1 - mass) ** m / m for m in range(1, self.size + 1))

    def probability_of_at_least(self, count: int) -> float:
        """Probability that an on-policy group holds at least `count` correct responses."""
        mass = self.policy.mass.item()
        return sum(
            math.comb(self.size, k) * mass**k * (1 - mass) ** (self.size - k) for k in range(count, self.size + 1)
        )


def cokl_expectation(space: SmallSpace, gradient: Tensor) -> Tensor:
    """Appendix B: the correction is missing from groups without a correct response."""
    return gradient - (1 - space.probability_of_at_least(1)) * space.log_mass_gradient()


def shrunk_by_groups_with(count: int) -> Callable[[SmallSpace, Tensor], Tensor]:
    """Unbiased given `count` correct responses, and zero otherwise."""
    return lambda space, gradient: space.probability_of_at_least(count) * gradient


# The others are unbiased. The covariance within pi+ that correct-only reverse KL follows takes two correct responses.
FINITE_GROUP_EXPECTATIONS = {
    "cokl": cokl_expectation,
    "cokl_without_term1": shrunk_by_groups_with(1),
    "correct_reverse_kl": shrunk_by_groups_with(2),
}


@every_regularizer
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("correct", [[True, False, True], [False, True, False], [True, True, True]])
def test_expected_surrogate_gradient(variant: str, size: int, correct: list[bool]):
    """The exact gradient, or the finite-group formula where the estimator is self-normalised."""
    space = SmallSpace(correct, size)
    gradient = VARIANTS[variant].logit_gradient(space.policy, space.reference).detach()
    expected = FINITE_GROUP_EXPECTATIONS.get(variant, lambda space, gradient: gradient)(space, gradient)
    assert_close(space.expected_gradient(VARIANTS[variant]), expected, 1e-14)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_expected_cokl_surrogate_is_the_gradient_of_cokl_and_the_recovery_term(size: int):
    space = SmallSpace([True, False, True], size)
    objective = regularizers.get("cokl").value(space.policy, space.reference) + space.recovery_term()
    expected = torch.autograd.grad(objective, space.logits, retain_graph=True)[0]
    assert_close(space.expected_gradient(regularizers.get("cokl")), expected, 1e-14)
