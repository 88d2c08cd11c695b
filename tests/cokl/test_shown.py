"""Objects that people print are one short line, whatever they hold."""

import numpy as np
import pytest
import torch

from cokl import methods, regularizers
from cokl.groups import RegularizationRows, ResponseGroups, RowIndex
from cokl.policy import CorrectSet, Policy
from llm_bridge.buffer.groups import Buffer, CachedGroup

CORRECT = CorrectSet.from_mask(torch.arange(200) < 3)
PROMPT = [{"role": "user", "content": "2 + 2? " * 500}]
GROUP = CachedGroup(PROMPT, "sums", "4" * 500, np.arange(900), [np.arange(90)] * 8, np.ones(8))
INDEX = RowIndex(torch.arange(64).reshape(8, 8), torch.zeros(8, 0, dtype=torch.int64))


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (CORRECT, "CorrectSet(actions=int64(3,), num_actions=200)"),
        (
            Policy(torch.zeros(4, 5, 200), CORRECT),
            "Policy(logits=float32(4, 5, 200), correct=CorrectSet(actions=int64(3,), num_actions=200))",
        ),
        (
            ResponseGroups(-torch.ones(2, 8), torch.ones(2, 8, dtype=torch.int64)),
            "ResponseGroups(log_probs=float32(2, 8), rewards=int64(2, 8))",
        ),
        (
            RegularizationRows(INDEX, -torch.ones(64), torch.ones(64)),
            "RegularizationRows(index=RowIndex(reference=int64(8, 8), rollout=int64(8, 0)), log_probs=float32(64,), "
            "rewards=float32(64,))",
        ),
        (
            GROUP,
            f"CachedGroup(prompt=1 x dict, data_source='sums', ground_truth='{'4' * 56}..., prompt_ids=int64(900,), "
            "response_ids=8 x int64(90,), rewards=float64(8,), extra_info={}, masks=8 x int64(90,))",
        ),
        (
            Buffer((GROUP,), "0" * 64, 0.7),
            f"Buffer(groups=1 x CachedGroup, fingerprint='{'0' * 56}..., temperature=0.7)",
        ),
        (regularizers.get("replay"), "CorrectForwardKL(name='correct_forward_kl', label='Replay')"),
        (
            methods.get("cokl"),
            "Method(name='cokl', label='CoKL', regularizer=CoKL(name='cokl', label='CoKL'), floor=0.0)",
        ),
        (methods.get("none"), "Method(name='none', label='GRPO w/o KL', regularizer=None, floor=0.0)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_printed_is_types_and_shapes(shown, line):
    assert repr(shown) == str(shown) == line
