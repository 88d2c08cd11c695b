"""Pass@k and majority votes, against drawing every subset and every tie by hand."""

import itertools

import pytest

from llm_bridge.rewards.repeated import majority, pass_at_k, validation_metrics


def test_one_correct_of_four_is_pass_at_4_of_1():
    """Drawing with replacement would give 1 - (3 / 4)^4 = 0.68."""
    assert pass_at_k([False, True, False, False], 4) == 1


@pytest.mark.parametrize("right", range(9))
@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_response(right, k):
    correct = [place < right for place in range(8)]
    subsets = list(itertools.combinations(correct, k))
    assert pass_at_k(correct, k) == pytest.approx(sum(any(subset) for subset in subsets) / len(subsets), abs=1e-15)


@pytest.mark.parametrize("k", [0, 5])
def test_more_draws_than_responses_are_refused(k):
    with pytest.raises(ValueError, match="expected 1 to 4"):
        pass_at_k([True] * 4, k)


@pytest.mark.parametrize(
    ("correct", "answers", "expected"),
    [
        ([1, 1, 0, 0, 0], ["7", "7.0", "5", "6", "4"], 1.0),  # the correct ones are one party
        ([1, 0, 0, 0], ["7", "5", "5", "6"], 0.0),
        ([1, 1, 0, 0], ["7", "7", "5", "5"], 0.5),
        ([1, 0, 0, 0], ["7", "5", "6", "4"], 0.25),
        ([1, 0, 0, 0], ["7", "", "", ""], 1.0),  # who gives no answer does not vote
        ([0, 0], ["", ""], 0.0),
    ],
)
def test_the_majority_decides(correct, answers, expected):
    assert majority([bool(flag) for flag in correct], answers) == expected


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
