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
                "val/math500/pass@2": 1,
                "val/math500/majority@2": 0.75,
            }
        )
        assert "val/math500/majority@2" not in validation_metrics(sources, uids, rewards, None)
