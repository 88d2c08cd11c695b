"""Metrics of prompts with unequal numbers of responses, worked out by hand."""

import pytest

from llm_bridge.rewards.repeated import validation_metrics


def test_prompts_count_alike_and_short_ones_take_no_part_in_pass_and_majority():
    """Prompt a has four responses, one correct; b four, three correct; c two, both correct.

    mean: (1/4 + 3/4 + 1) / 3; over all rows it would be 6/10. pass@2 of a is 1 - C(3,2)/C(4,2) = 1/2, of b 1. Of a the
    most frequent answer is wrong, of b right.
    """
    of_prompts = {
        "a": [(1, "7"), (0, "1"), (0, "1"), (0, "2")],
        "b": [(1, "5"), (1, "5"), (0, "5.5"), (1, "5")],
        "c": [(1, "9"), (1, "9")],
    }
    rows = [("math500", uid, reward, answer) for uid, group in of_prompts.items() for reward, answer in group]
    found = validation_metrics(*zip(*rows, strict=True))
    assert found == pytest.approx(
        {
            "val/math500/mean@4": 2 / 3,
            "val/math500/pass@2": 3 / 4,
            "val/math500/pass@4": 1,
            "val/math500/majority@4": 1 / 2,
            "val/math500/distinct@4": 1,
            "val/math500/entropy@4": 0,
        }
    )


def test_one_reward_that_is_no_verdict_leaves_the_mean_alone():
    """A source is graded, not judged, as soon as one of its rewards is; another source beside it is not touched."""
    rows = [("chat", "a", 0, ""), ("chat", "a", 0.25, ""), ("math", "b", 0, "1"), ("math", "b", 1, "2")]
    found = validation_metrics(*zip(*rows, strict=True))
    assert found == pytest.approx(
        {
            "val/chat/mean@2": 0.125,
            "val/math/mean@2": 0.5,
            "val/math/pass@2": 1,
            "val/math/majority@2": 0.5,
            "val/math/distinct@2": 1,
            "val/math/entropy@2": 0,
        }
    )
