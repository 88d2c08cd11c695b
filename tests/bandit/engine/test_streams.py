"""Random streams: every purpose of every seed draws its own numbers, the same ones each time."""

import itertools

import numpy as np

from bandit.engine.environment import RandomStream, random_generator


def test_streams_of_all_seeds_differ_pairwise_and_repeat():
    draws = {(seed, stream): random_generator(seed, stream).random(16) for seed in range(3) for stream in RandomStream}
    assert len(draws) == 3 * len(RandomStream)
    for one, other in itertools.combinations(draws, 2):
        assert not set(draws[one]) & set(draws[other]), (one, other)
    for (seed, stream), numbers in draws.items():
        np.testing.assert_array_equal(random_generator(seed, stream).random(16), numbers)
