"""Rows that come in no order, and groups whose responses differ in length, written down."""

import pytest
import torch

from cokl.groups import RegularizationRows, RowIndex


def test_both_streams_are_in_the_order_of_the_prompts_numbers_whichever_comes_first():
    """Prompt 900 comes before 7 in the one stream and after it in the other, and each in pieces."""
    index = RowIndex.of(
        [("rollout", 900), ("reference", 7), None, ("rollout", 7), ("reference", 900), ("rollout", 7), ("rollout", 900)]
    )
    assert index.reference.tolist() == [[1], [4]]
    assert index.rollout.tolist() == [[3, 5], [0, 6]]


def test_a_mean_over_tokens_is_a_groups_own():
    index = RowIndex.of([("rollout", 1), ("rollout", 0), ("rollout", 1), ("rollout", 0)])
    tokens = torch.tensor([2.0, 10.0, 4.0, 30.0])
    rows = RegularizationRows(index, torch.zeros(4), torch.zeros(4), tokens=tokens)
    assert rows.divisors(index.rollout, "group-mean").tolist() == [[20.0], [3.0]]
    assert rows.divisors(index.rollout, "token-mean").tolist() == [[10.0, 30.0], [2.0, 4.0]]
    assert rows.divisors(index.rollout, "token-sum").tolist() == 1
    with pytest.raises(ValueError, match="lengths, which group-mean divides by"):
        RegularizationRows(index, torch.zeros(4), torch.zeros(4)).divisors(index.rollout, "group-mean")
