"""Filtered reference groups against the enumeration of those that hold a correct response, and the lab's objective."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch

from bandit.finite_group.train import draw_filtered
from cokl.policy import CorrectSet, Policy

PROBS = (0.5, 0.05, 0.3, 0.15)
CORRECT = (False, True, False, True)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_filtered_groups_have_the_conditional_distribution_in_every_order(size):
    """Each ordered group's frequency lies within its 5-sigma binomial interval."""
    count = 200_000
    policy = Policy(torch.tensor(PROBS).double().log()[None, None], CorrectSet.from_mask(torch.tensor(CORRECT)[None]))
    uniforms = torch.from_numpy(np.random.default_rng(size).random((1, count, size + 1)))
    drawn = draw_filtered(policy, uniforms)
    seen = Counter(map(tuple, drawn.actions.view(count, size).tolist()))
    kept = [group for group in itertools.product(range(4), repeat=size) if any(CORRECT[action] for action in group)]
    total = sum(math.prod(PROBS[action] for action in group) for group in kept)
    assert set(seen) <= set(kept)
    for group in kept:
        share = math.prod(PROBS[action] for action in group) / total
        assert abs(seen[group] / count - share) < 5 * math.sqrt(share * (1 - share) / count)
