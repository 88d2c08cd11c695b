"""Finite groups: two enumerations agree, bad input is named, and the bandit's own network obeys the recovery form."""

import itertools

import numpy as np
import pytest
import torch

from bandit import preset
from bandit.engine.environment import Environment
from bandit.engine.networks import StackedMLP
from bandit.engine.reference import layer_sizes, pretrain
from cokl.support.errors import InputError
from theory.claims.finite_group import monte_carlo_agreement
from theory.definitions import Problem
from theory.finite_group import Bandit, expected_rollout_weights
from theory.formulas import Formulas
from theory.numeric.off_policy import behavior_policy, bias, clipped_limit


@pytest.mark.parametrize("epsilon", [None, 0.2])
def test_counts_agree_with_sequences(epsilon):
    current, behavior, size = np.array([0.2, 0.1]), np.array([0.1, 0.4]), 4
    shares = np.append(behavior, 0.5)
    expected = np.zeros(2)
    for group in itertools.product(range(3), repeat=size):
        ratios = np.append(current / behavior, 0)
        if epsilon:
            ratios[:2] = ratios[:2].clip(1 - epsilon, 1 + epsilon)
        weights = ratios[list(group)]
        if weights.sum():
            for action, weight in zip(group, weights / weights.sum(), strict=True):
                if action < 2:
                    expected[action] += np.prod(shares[list(group)]) * weight
    np.testing.assert_allclose(expected_rollout_weights(current, behavior, size, epsilon), expected, atol=1e-14)


def test_bias_grows_with_mismatch_and_clipping():
    current = np.array([0.16, 0.08, 0.04, 0.02])
    totals = [bias(current, behavior_policy(current, m, 0.3, 1), 4, 0.2) for m in (0.0, 0.3, 0.6, 1.2)]
    assert totals == sorted(totals)
    assert totals[0] < 1e-14
    far = behavior_policy(current, 0.6, 0.3, 1)
    assert bias(current, far, 16, None) < bias(current, far, 16, 0.2)
    assert clipped_limit(current, far, 0.05) > clipped_limit(current, far, 0.5)


@pytest.mark.parametrize("mask", [[False, False], [True, True]])
def test_a_mask_needs_both_kinds_of_action(mask):
    with pytest.raises(InputError, match=r"^correct:"):
        Bandit(torch.zeros(2), torch.zeros(2), torch.zeros(2), torch.tensor(mask))
    with pytest.raises(InputError, match=r"^correct:"):
        Problem(np.zeros(2), np.zeros(2), np.array(mask))


def test_the_bandits_network_obeys_the_recovery_form():
    """Monte Carlo over groups of 8, the pretrained network against itself moved a little, in random directions."""
    config = preset("quick")
    sizes = layer_sizes(config)
    pretrained = pretrain(config, 0, "cpu", torch.float64)
    environment = Environment(config.environment, 0)
    x = environment.test_inputs[:1].double()
    actions = environment.correct.actions[environment.test_clusters[0]]
    mask = torch.zeros(config.environment.actions, dtype=torch.bool)
    mask[actions] = True
    noise = torch.randn(len(pretrained), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    parameters = torch.nn.Parameter(pretrained + 0.02 * noise)
    logits, start = parameters, 0
    hidden = x[0]
    for index, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        weight = logits[start : start + fan_in * fan_out].reshape(fan_in, fan_out)
        bias_vector = logits[start + fan_in * fan_out : start + (fan_in + 1) * fan_out]
        start += (fan_in + 1) * fan_out
        hidden = hidden @ weight + bias_vector
        hidden = hidden.tanh() if index < len(sizes) - 2 else hidden
    assert start == len(pretrained)
    with torch.no_grad():
        reference = StackedMLP(sizes, pretrained[None]).forward(x[None])[0, 0].clone()
        assert torch.allclose(StackedMLP(sizes, parameters.detach()[None]).forward(x[None])[0, 0], hidden)
    bandit = Bandit(reference, hidden, hidden.detach(), mask)
    score, bound, _ = monte_carlo_agreement(Formulas(), bandit, [parameters], 8, 40_000, seed=2)
    assert score < bound
