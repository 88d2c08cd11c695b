"""Rows that come in no order, and groups whose responses differ in length, written down."""

import torch

from cokl import methods
from cokl.groups import RegularizationRows, RowIndex, SurrogateConfig


def test_both_streams_are_in_the_order_of_the_prompts_numbers_whichever_comes_first():
    """Prompt 900 comes before 7 in the one stream and after it in the other, and each in pieces."""
    index = RowIndex.of(
        [("rollout", 900), ("reference", 7), None, ("rollout", 7), ("reference", 900), ("rollout", 7), ("rollout", 900)]
    )
    assert index.reference.tolist() == [[1], [4]]
    assert index.rollout.tolist() == [[3, 5], [0, 6]]


def test_a_mean_over_tokens_divides_by_each_responses_own():
    index = RowIndex.of([("rollout", 0), ("reference", 0), ("rollout", 0)])
    rows = RegularizationRows(index, torch.zeros(3), torch.ones(3), tokens=torch.tensor([10.0, 4.0, 30.0]))
    expected = torch.tensor([1 / 2 / 10, -1 / 4, 1 / 2 / 30])
    torch.testing.assert_close(methods.get("cokl").row_weights(rows, 1.0, SurrogateConfig()), expected)
