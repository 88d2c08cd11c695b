"""Filtered reference groups against the enumeration of every group that holds a correct response."""

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


def test_responses_carry_their_rewards_and_log_probabilities():
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.tensor([[1, 0, 0, 1, 0], [0, 1, 0, 0, 0], [0, 1, 1, 1, 1]]).bool()
    policy = Policy(logits, CorrectSet.from_mask(mask[None].expand(2, -1, -1)))
    uniforms = torch.from_numpy(np.random.default_rng(0).random((3, 7, 5)))
    drawn = draw_filtered(policy, uniforms)
    assert drawn.actions.shape == (2, 3, 28)
    for run, row, place in np.ndindex(2, 3, 28):
        action = drawn.actions[run, row, place]
        assert drawn.rewards[run, row, place] == mask[row, action]
        assert drawn.behavior_log_probs[run, row, place] == policy.log_probs[run, row, action]
    assert (drawn.rewards.unflatten(-1, (7, 4)).sum(-1) > 0).all()
