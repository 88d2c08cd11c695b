"""Filtered reference groups against the enumeration of those that hold a correct response, and the lab's objective."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch

from bandit.engine.reference import pretrain, seed_task
from bandit.finite_group.train import GroupRun, SampledObjective, draw_filtered
from cokl import methods
from cokl.policy import CorrectSet, Policy
from tests.bandit.finite_group.conftest import TINY

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


def test_sampled_updates_converge_to_the_exact_one_as_groups_grow():
    """On the lab's own objective: a 99.9% interval around the mean effect along grad log Z holds R_G's prediction for
    every G; it excludes zero, the exact update, for few responses and includes it for many."""
    effects = {}
    task = seed_task(TINY, 0, pretrain(TINY, 0, "cpu", torch.float64))
    for size in (1, 4, 64, 512):
        run = GroupRun(0, methods.get("cokl"), 1.0, "fresh", float(size), 1)
        objective = SampledObjective(TINY, run, torch.ones(1, dtype=torch.float64), task.train)
        batch = torch.arange(200)
        reference = task.train.reference(batch)
        shift = torch.randn(1, 200, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        policy = Policy(reference.logits + 0.5 * shift, reference.correct)
        direction = policy.log_mass_logit_gradient()
        exact = methods.get("cokl").logit_gradient(policy, reference, 1.0)
        draws = []
        for _ in range(30):
            objective.take(batch)
            sampled = objective.added_gradient(policy, task.train.reference(batch))
            draws.append(-((sampled - exact) * direction).sum(-1).mean())
        mean, error = torch.stack(draws).mean(), torch.stack(draws).std() / math.sqrt(len(draws))
        prediction = ((1 - policy.mass) ** size * direction.square().sum(-1)).mean()
        assert abs(mean - prediction) < 3.66 * error  # Student's t with 29 degrees of freedom
        effects[size] = (mean, error)
    for size, excluded in ((1, True), (4, True), (512, False)):
        mean, error = effects[size]
        assert (abs(mean) > 3.66 * error) == excluded
    assert effects[1][0] > effects[4][0] > effects[64][0] + 0.01
    assert effects[512][1] < effects[64][1] < effects[1][1]
