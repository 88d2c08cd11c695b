"""Validation metrics of several responses to a prompt."""

import pytest

from llm_bridge.rewards.repeated import validation_metrics


def test_metrics_are_averages_over_prompts_in_any_order_of_rows():
    rows = [("math500", "a", 1.0, "7"), ("math500", "b", 0.0, "1"), ("chat_val", "c", 0.3, "")]
    rows += [("math500", "b", 1.0, "2"), ("math500", "a", 1.0, "7"), ("chat_val", "c", 0.5, "")]
    for order in (rows, rows[::-1]):
        sources, uids, rewards, answers = zip(*order, strict=True)
        found = validation_metrics(sources, uids, rewards, answers)
        assert found == pytest.approx(
            {
                "val/chat_val/mean@2": 0.4,
                "val/math500/mean@2": 0.75,
                "val/math500/distinct@2": 1,
                "val/math500/entropy@2": 0,
            }
        )
        assert "val/math500/distinct@2" not in validation_metrics(sources, uids, rewards, None)


def test_diversity_is_of_the_correct_answers_alone():
    """By hand: a has 3 + 7 twice and 4 + 6 once; b has none; c has one. 1/3 ln 3 + 2/3 ln 1.5 = 0.6365."""
    answers = {"a": ["3 + 7", "4 + 6", "3 + 7", "1 + 1"], "b": ["1", "2", "3", "4"], "c": ["5 + 5", "", "2", "3"]}
    correct = {"a": [1, 1, 1, 0], "b": [0] * 4, "c": [1, 0, 0, 0]}
    rows = [("sums", uid, float(correct[uid][place]), answers[uid][place]) for uid in answers for place in range(4)]
    found = validation_metrics(*zip(*rows, strict=True))
    assert found["val/sums/distinct@4"] == pytest.approx((2 + 0 + 1) / 3)
    assert found["val/sums/entropy@4"] == pytest.approx(0.6365 / 2, abs=1e-4)
    unsolved = validation_metrics(*zip(*[row for row in rows if row[1] == "b"], strict=True))
    assert unsolved["val/sums/distinct@4"] == 0
    assert "val/sums/entropy@4" not in unsolved


def test_prompts_count_alike_and_short_ones_take_no_part_in_diversity():
    """Prompt a has four responses, one correct; b four, three correct and alike; c two, both correct and different.

    mean: (1/4 + 3/4 + 1) / 3; over all rows it would be 6/10.
    """
    of_prompts = {
        "a": [(1, "7"), (0, "1"), (0, "1"), (0, "2")],
        "b": [(1, "5"), (1, "5"), (0, "5.5"), (1, "5")],
        "c": [(1, "9"), (1, "10")],
    }
    rows = [("math500", uid, reward, answer) for uid, group in of_prompts.items() for reward, answer in group]
    found = validation_metrics(*zip(*rows, strict=True))
    assert found == pytest.approx(
        {
            "val/math500/mean@4": 2 / 3,
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
            "val/math/distinct@2": 1,
            "val/math/entropy@2": 0,
        }
    )
