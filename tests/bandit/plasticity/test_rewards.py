"""The changed rewards are what their names say."""

import pytest
import torch

from bandit.engine.environment import Environment
from bandit.plasticity.train import reward_table
from tests.bandit.plasticity.conftest import TINY


def test_rewards_are_what_their_names_say():
    environment = Environment(TINY.environment, 0)
    correct = environment.correct.mask
    own, reference = (torch.rand(runs, *correct.shape, dtype=torch.float64) for runs in (2, 1))

    def table(stage):
        return reward_table(environment, 0, stage, own, reference)

    one, two = table("narrowed-1"), table("narrowed-2")
    assert two.sum(-1).unique().tolist() == [2]
    assert bool((two <= correct).all())
    assert bool((one <= two).all())
    assert bool((table("chain-2") == two).all())
    moved = table("moved-2")
    assert moved.sum(-1).unique().tolist() == [2]
    assert not bool((moved.bool() & correct).any())
    for stage, probs in (("repaired", own), ("repaired-reference", reference)):
        repaired = table(stage)
        wrong = correct & ~repaired.bool()
        assert wrong.sum(-1).unique().tolist() == [1]
        assert torch.equal(probs[wrong], (probs * correct).amax(-1).flatten())
    preferred = table("preferred")
    liked = reference.where(preferred == 1, 0).amax(-1)
    others = reference.where((preferred > 0) & (preferred < 1), 1).amin(-1)
    assert bool((liked < others).all())
    assert preferred[0][correct].view(len(correct), -1).sum(-1).tolist() == pytest.approx([1.4] * len(correct))
