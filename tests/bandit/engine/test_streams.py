"""Random streams: every purpose of every seed draws its own numbers, the same ones each time."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from bandit import Environment
from bandit.engine.environment import RandomStream, random_generator
from bandit.engine.networks import initial_parameters
from bandit.engine.reference import layer_sizes, minibatches, pretrain


def test_streams_of_all_seeds_differ_pairwise_and_repeat():
    draws = {(seed, stream): random_generator(seed, stream).random(16) for seed in range(3) for stream in RandomStream}
    assert len(draws) == 3 * len(RandomStream)
    for one, other in itertools.combinations(draws, 2):
        assert not set(draws[one]) & set(draws[other]), (one, other)
    for (seed, stream), numbers in draws.items():
        np.testing.assert_array_equal(random_generator(seed, stream).random(16), numbers)


def test_no_test_input_is_a_training_input(tiny):
    for seed in range(2):
        environment = Environment(tiny.environment, seed)
        assert torch.cdist(environment.test_inputs, environment.train_inputs).min() > 1e-3
        shared = len(environment.test_clusters)
        assert not torch.equal(environment.test_clusters, environment.train_clusters[:shared])


def test_inputs_and_clusters_differ_between_seeds(tiny):
    first, second = (Environment(tiny.environment, seed) for seed in range(2))
    for name in ("centers", "oracle", "train_inputs", "test_inputs", "train_clusters", "test_clusters"):
        assert not torch.equal(getattr(first, name), getattr(second, name)), name


@pytest.mark.parametrize("minibatch", ["with_replacement", "epochs"])
def test_minibatches_differ_between_purposes_and_seeds(minibatch, tiny):
    config = dataclasses.replace(tiny, minibatch=minibatch)
    purposes = list(itertools.product(range(2), (RandomStream.PRETRAINING_BATCHES, RandomStream.RL_BATCHES)))
    batches = [torch.cat(list(itertools.islice(minibatches(config, *purpose), 3))) for purpose in purposes]
    for one, other in itertools.combinations(batches, 2):
        assert not torch.equal(one, other)
    for batch, purpose in zip(batches, purposes, strict=True):
        assert torch.equal(torch.cat(list(itertools.islice(minibatches(config, *purpose), 3))), batch)


def test_pretraining_starts_at_its_seeds_initialisation(tiny):
    """A learning rate that moves nothing shows where pretraining starts."""
    config = dataclasses.replace(tiny, pretrain_learning_rate=1e-14)
    starts = []
    for seed in range(2):
        start = initial_parameters(layer_sizes(config), 1.0, random_generator(seed, RandomStream.INITIALISATION))
        torch.testing.assert_close(pretrain(config, seed, "cpu", torch.float64), start, rtol=0, atol=1e-12)
        starts.append(start)
    assert not set(starts[0].tolist()) & set(starts[1].tolist())


def test_pretraining_takes_the_minibatches_of_its_seed(tiny, monkeypatch):
    asked = []

    def recorded(config, seed, stream):
        asked.append((seed, stream))
        return minibatches(config, seed, stream)

    monkeypatch.setattr("bandit.engine.reference.minibatches", recorded)
    for seed in range(2):
        pretrain(tiny, seed, "cpu", torch.float64)
    assert asked == [(0, RandomStream.PRETRAINING_BATCHES), (1, RandomStream.PRETRAINING_BATCHES)]
