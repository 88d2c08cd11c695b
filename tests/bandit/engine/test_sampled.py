"""Sampled logit gradients: all groups enumerated, autograd of the surrogates, and runs that do not touch each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from bandit.engine.sampled import (
    Responses,
    draw_responses,
    expected_advantages,
    expected_grpo_logit_gradient,
    grpo_logit_gradient,
    method_logit_gradient,
)
from cokl import methods
from cokl.groups import SurrogateConfig
from cokl.policy import CorrectSet, Policy
from theory.recovery import recovery_derivative

ACTIONS, SIZE = 4, 3
SURROGATE = SurrogateConfig()
EVERY_GROUP = torch.tensor(list(itertools.product(range(ACTIONS), repeat=SIZE)))
ALL_METHODS = [
    "none",
    "reverse_kl",
    "forward_kl",
    "correct_reverse_kl",
    "correct_forward_kl",
    "cokl",
    "cokl_without_term1",
    "cokl_floor",
    "entropy",
    "jensen_shannon",
]


def policies(seed: int, runs: int = 1, inputs: int = 1, actions: int = ACTIONS, correct: int = 2) -> tuple:
    """A policy, an older one and a reference, with log-odds of order one and the same correct sets."""
    rng = np.random.default_rng(seed)
    mask = torch.zeros(1, inputs, actions, dtype=torch.bool)
    mask[..., :correct] = True
    sets = CorrectSet.from_mask(mask)
    current = torch.from_numpy(rng.normal(size=(runs, inputs, actions)))
    older = current + torch.from_numpy(rng.normal(scale=0.2, size=current.shape))
    return Policy(current, sets), Policy(older, sets), Policy(torch.from_numpy(rng.normal(size=mask.shape)), sets)


def responses(actions: torch.Tensor, behavior: Policy, reference: Policy) -> Responses:
    """Given actions (1, B, G) as if `behavior` had drawn them."""

    def at(dense):
        return dense.expand(*actions.shape[:-1], -1).gather(-1, actions)

    return Responses(actions, at(behavior.correct.mask.double()), at(behavior.log_probs), at(reference.log_probs))


def repeated(policy: Policy, times: int) -> Policy:
    """One context's policy in `times` inputs."""
    return Policy(policy.logits.expand(1, times, -1), policy.correct[:, [0] * times])


def every_group(policy: Policy, reference: Policy) -> tuple[torch.Tensor, Responses]:
    """The probability of each group that one context's policy can draw, and the groups, an input each."""
    chances = policy.probs[0, 0][EVERY_GROUP].prod(-1)
    count = len(EVERY_GROUP)
    return chances, responses(EVERY_GROUP[None], repeated(policy, count), repeated(reference, count))


def expected_over_groups(
    method: str, policy: Policy, reference: Policy, beta: float, only_correct_cached: bool = False
) -> torch.Tensor:
    """(1, 1, A): the sampled gradient's mean over all pairs of a cached and a fresh group, weighted by probability.

    only_correct_cached: given that the cached group holds a correct response, as those of a filtered buffer do.
    """
    cached_chances, cached = every_group(reference, reference)
    chances, fresh = every_group(policy, reference)
    if only_correct_cached:
        cached_chances = cached_chances * cached.rewards[0].any(-1)
    pairs = torch.cartesian_prod(torch.arange(len(EVERY_GROUP)), torch.arange(len(EVERY_GROUP)))
    gradients = method_logit_gradient(
        methods.get(method),
        repeated(policy, len(pairs)),
        cached[pairs[:, 0]],
        fresh[pairs[:, 1]],
        torch.tensor([beta], dtype=torch.float64),
        SURROGATE,
    )
    weights = cached_chances[pairs[:, 0]] / cached_chances.sum() * chances[pairs[:, 1]]
    return (weights[:, None] * gradients).sum(1, keepdim=True)


@pytest.mark.parametrize("correct", [1, 2])
def test_cokls_expected_update_is_the_exact_one_plus_the_recovery_term(correct):
    policy, _, reference = policies(0, correct=correct)
    total = expected_over_groups("cokl", policy, reference, 0.7, only_correct_cached=True)
    exact = methods.get("cokl").logit_gradient(policy, reference, 0.7)
    slope = torch.from_numpy(recovery_derivative(policy.mass.numpy(), SIZE))
    recovery = 0.7 * slope[..., None] * policy.mass_logit_gradient()
    assert recovery.abs().max() > 1e-3
    torch.testing.assert_close(total, exact + recovery, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", ["forward_kl", "reverse_kl", "entropy", "jensen_shannon"])
def test_full_regularizers_are_unbiased(method):
    policy, _, reference = policies(1)
    exact = methods.get(method).logit_gradient(policy, reference, 0.3)
    torch.testing.assert_close(expected_over_groups(method, policy, reference, 0.3), exact, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("on_policy", [True, False])
def test_expected_grpo_is_the_mean_over_all_groups(on_policy):
    policy, older, reference = policies(2)
    older = policy if on_policy else older
    chances, fresh = every_group(older, reference)
    gradients = grpo_logit_gradient(repeated(policy, len(chances)), fresh)
    total = (chances[:, None] * gradients).sum(1, keepdim=True)
    expected = expected_grpo_logit_gradient(policy, older, SIZE)
    assert expected.abs().max() > 1e-2
    torch.testing.assert_close(total, expected, rtol=1e-10, atol=1e-12)
    if on_policy:  # a positive multiple of the gradient of -Z
        factor = expected / -policy.mass_logit_gradient()
        torch.testing.assert_close(factor, factor[..., :1].expand_as(factor))
        assert (factor > 0).all()


def test_mean_advantages_tend_to_the_population_s_and_survive_extreme_masses():
    policy, _, _ = policies(3)
    correct, incorrect = expected_advantages(policy.log_mass, policy.log_incorrect_mass, 2_000)
    mass = policy.mass
    torch.testing.assert_close(correct, ((1 - mass) / mass).sqrt(), rtol=2e-3, atol=0)
    torch.testing.assert_close(incorrect, -(mass / (1 - mass)).sqrt(), rtol=2e-3, atol=0)
    sets = CorrectSet.from_mask(torch.tensor([[[True, False]]]))
    for logit in (-200.0, 200.0, -torch.inf):
        saturated = Policy(torch.tensor([[[logit, 0.0]]]), sets)
        for values in expected_advantages(saturated.log_mass, saturated.log_incorrect_mass, 8):
            assert values.isfinite().all()
        assert expected_grpo_logit_gradient(saturated, saturated, 8).isfinite().all()


@pytest.mark.parametrize("method", [name for name in ALL_METHODS if name != "none"])
def test_sampled_tends_to_exact_as_groups_grow(method):
    """4,000 independent pairs of groups: each coordinate's z-score; a group of 64 hardly ever misses the correct."""
    inputs = 4_000
    policy, _, reference = policies(4)
    many = [repeated(p, inputs) for p in (policy, reference)]
    rng = np.random.default_rng(5)
    cached, fresh = (
        draw_responses(drawn, many[1], torch.from_numpy(rng.random((inputs, 64)))) for drawn in (many[1], many[0])
    )
    betas = torch.tensor([0.5], dtype=torch.float64)
    samples = method_logit_gradient(methods.get(method), many[0], cached, fresh, betas, SURROGATE)[0]
    exact = methods.get(method).logit_gradient(policy, reference, 0.5)[0, 0]
    # The conditioned forms are self-normalised: what is left of their bias is of the order 1 / G squared or below.
    error = samples.std(0) / inputs**0.5
    assert ((samples.mean(0) - exact).abs() < 4.5 * error + 1e-3 * exact.abs().max()).all()


def test_draws_follow_the_policy_and_never_have_probability_zero():
    policy, _, reference = policies(6, actions=5)
    policy = Policy(torch.tensor([[[0.3, -torch.inf, 1.0, -0.5, -torch.inf]]]).double(), policy.correct)
    grid = (torch.arange(100_000, dtype=torch.float64) / 100_000)[None]
    drawn = draw_responses(policy, reference, torch.cat([grid, torch.full_like(grid[:, :1], 1 - 2**-53)], 1))
    shares = torch.bincount(drawn.actions.flatten(), minlength=5) / 100_001
    torch.testing.assert_close(shares.double(), policy.probs[0, 0], rtol=0, atol=3e-5)
    assert shares[1] == shares[4] == 0
    assert drawn.behavior_log_probs.isfinite().all()
    assert torch.equal(drawn.rewards, (drawn.actions < 2).double())
