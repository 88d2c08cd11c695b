"""The coefficient over training."""

from __future__ import annotations

import math

import pytest

from cokl.support.errors import InputError
from llm_bridge.trainer.schedule import BetaSchedule


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
