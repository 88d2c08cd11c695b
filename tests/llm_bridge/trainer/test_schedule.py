"""The coefficient over training, and the estimate of the conditional KL that it can be held to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cokl.regularizers.base import Stream
from cokl.support.errors import InputError
from llm_bridge.trainer.schedule import BetaSchedule, conditional_kl
from llm_bridge.trainer.streams import Minibatch, Place


def test_constant_stays_and_linear_ends_where_it_should():
    constant, linear = (BetaSchedule(kind, 2.0, 0.5, 0.0) for kind in ("constant", "linear"))
    assert [constant.begin(step, 4) for step in (1, 2, 3, 4)] == [2.0] * 4
    assert [linear.begin(step, 4) for step in (1, 2, 3, 4, 5)] == [2.0, 1.5, 1.0, 0.5, 0.5]
    assert linear.begin(1, 1) == 2.0


def test_the_target_is_reached_where_the_divergence_falls_with_the_coefficient():
    schedule = BetaSchedule("target", 8.0, 0.0, 0.1)
    for step in range(400):
        schedule.observe(0.3 / schedule.begin(step, 400))
    assert schedule.beta == pytest.approx(3.0, rel=1e-3)
    before = schedule.beta
    schedule.observe(1e9)
    assert schedule.beta == pytest.approx(1.02 * before)
    schedule.observe(math.nan)
    assert schedule.beta == pytest.approx(1.02 * before)


def test_a_held_coefficient_goes_on_from_its_checkpoint(tmp_path):
    schedule = BetaSchedule("target", 1.0, 0.0, 0.1)
    schedule.observe(1.0)
    schedule.save(tmp_path)
    again = BetaSchedule("target", 1.0, 0.0, 0.1)
    again.resume(tmp_path)
    assert again.beta == schedule.beta != 1.0
    with pytest.raises(InputError, match=r"holds no cokl_beta.json"):
        again.resume(tmp_path / "other")
    BetaSchedule("constant", 1.0, 0.0, 0.0).resume(tmp_path / "other")


def test_the_conditional_divergence_is_estimated_without_bias_from_many_responses():
    """Against the definition, on two known distributions over six answers of which three are correct."""
    random = np.random.default_rng(0)
    reference, policy = np.array([0.3, 0.2, 0.1, 0.2, 0.1, 0.1]), np.array([0.1, 0.3, 0.2, 0.1, 0.2, 0.1])
    correct = np.array([1, 1, 1, 0, 0, 0])
    conditional = [p * correct / (p @ correct) for p in (reference, policy)]
    expected = float(conditional[0][:3] @ np.log(conditional[0][:3] / conditional[1][:3]))
    size = 20_000
    places, log_probs, verdicts, cached = {}, {}, {}, {}
    sampled: list[tuple[Stream, np.ndarray]] = [("reference", reference), ("rollout", policy)]
    for stream, p in sampled:
        for row, answer in enumerate(random.choice(6, size, p=p)):
            uid = f"{stream}{row}"
            places[uid] = Place(stream, 0)
            key = f"{uid}_0_0"
            log_probs[key], verdicts[key] = float(np.log(policy[answer])), float(correct[answer])
            cached[uid] = float(np.log(reference[answer]))
    minibatch = Minibatch(places, 2 * size, cached)
    assert conditional_kl(minibatch, list(log_probs), log_probs, verdicts) == pytest.approx(expected, abs=0.02)
    none = dict.fromkeys(verdicts, 0.0)
    assert math.isnan(conditional_kl(minibatch, list(log_probs), log_probs, none))
