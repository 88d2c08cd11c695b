"""The two task families, their overlaps, and the buffer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from bandit.config import EnvironmentConfig
from bandit.engine.networks import initial_parameters
from bandit.shift.config import ShiftConfig
from bandit.shift.train import families, layer_sizes, shift_task
from cokl import methods
from cokl.support.errors import InputError

CONFIG = ShiftConfig(
    environment=EnvironmentConfig(
        clusters=40, input_dim=50, actions=30, correct_actions=6, train_inputs=600, test_inputs=50
    )
)


@pytest.mark.parametrize("overlap", [0.0, 0.6, 1.0])
def test_centres_overlap_as_asked_for_and_keep_their_scale(overlap):
    prior, new = families(dataclasses.replace(CONFIG, cluster_overlap=overlap), 3)
    correlation = np.corrcoef(prior.centers.flatten(), new.centers.flatten())[0, 1]
    assert correlation == pytest.approx(overlap, abs=0.06)
    assert new.centers.std() == pytest.approx(1.0, abs=0.05)
    for task in (prior, new):
        noise = task.train_inputs - task.centers[task.train_clusters]
        assert noise.std() == pytest.approx(CONFIG.environment.noise, rel=0.03)
    assert not torch.equal(prior.train_clusters, new.train_clusters)


@pytest.mark.parametrize(("overlap", "shared"), [(0.0, 0), (0.5, 3), (1.0, 6)])
def test_partners_share_as_many_correct_actions_as_asked_for(overlap, shared):
    prior, new = families(dataclasses.replace(CONFIG, correct_overlap=overlap), 3)
    both = (prior.correct.mask & new.correct.mask).sum(-1)
    assert both.tolist() == [shared] * 40
    assert new.correct.mask.sum(-1).tolist() == [6] * 40
    for task in (prior, new):
        torch.testing.assert_close(task.oracle.sum(-1), torch.ones(40).double())
        mass = (task.oracle * task.correct.mask).sum(-1)
        torch.testing.assert_close(mass, torch.full((40,), CONFIG.environment.correct_mass).double())


def test_seeds_differ_and_repeat():
    first, again, other = (families(CONFIG, seed)[1] for seed in (0, 0, 1))
    assert torch.equal(first.train_inputs, again.train_inputs)
    assert torch.equal(first.oracle, again.oracle)
    assert not torch.equal(first.centers, other.centers)


def uniform_policy(config: ShiftConfig) -> torch.Tensor:
    """Parameters (P,) of a network that gives every action the same probability."""
    return torch.zeros_like(initial_parameters(layer_sizes(config), 1.0, np.random.default_rng(0)))


def test_the_filter_leaves_out_prompts_without_a_correct_response():
    config = dataclasses.replace(CONFIG, buffer_size=300, reference_group_size=4)
    parameters = uniform_policy(config)
    buffer = shift_task(config, 0, parameters).buffer
    assert len(set(map(tuple, buffer.prompts.inputs.tolist()))) == 300
    assert buffer.used_by(methods.get("forward_kl")) is buffer
    assert buffer.used_by(methods.get("none")) is buffer
    kept = buffer.used_by(methods.get("cokl"))
    assert (kept.responses.rewards.sum(-1) > 0).all()
    survivors = (buffer.responses.rewards[0].sum(-1) > 0).sum()
    assert len(kept.prompts.inputs) == kept.prompts.correct.actions.shape[0] == survivors
    assert survivors / 300 == pytest.approx(1 - 0.8**4, abs=4 * (0.59 * 0.41 / 300) ** 0.5)
    again = kept.prompts.correct.mask.gather(-1, kept.responses.actions[0])
    assert torch.equal(again.double(), kept.responses.rewards[0])


def test_an_empty_buffer_is_explained():
    config = dataclasses.replace(CONFIG, buffer_size=2, reference_group_size=1)
    parameters = uniform_policy(config)
    buffers = [shift_task(config, seed, parameters).buffer for seed in range(20)]
    empty = next(buffer for buffer in buffers if not buffer.responses.rewards.any())
    with pytest.raises(InputError, match="cokl: no prompt of the buffer has a correct reference response; make"):
        empty.used_by(methods.get("cokl"))
