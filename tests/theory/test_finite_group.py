"""Finite groups: two enumerations agree, and bad input is named."""

import itertools

import numpy as np
import pytest
import torch

from cokl.support.errors import InputError
from theory.definitions import Problem
from theory.finite_group import Bandit, expected_rollout_weights


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


@pytest.mark.parametrize("mask", [[False, False], [True, True]])
def test_a_mask_needs_both_kinds_of_action(mask):
    with pytest.raises(InputError, match=r"^correct:"):
        Bandit(torch.zeros(2), torch.zeros(2), torch.zeros(2), torch.tensor(mask))
    with pytest.raises(InputError, match=r"^correct:"):
        Problem(np.zeros(2), np.zeros(2), np.array(mask))
