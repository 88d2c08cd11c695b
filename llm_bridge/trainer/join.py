"""The RL batch and a regularization minibatch as one batch of prompts for VeRL's rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NonTensorData, TensorDict
from verl.utils import tensordict_utils as tu


def join(batch: TensorDict, rows: Sequence[Mapping[str, Any]], defaults: Mapping[str, Any]) -> TensorDict:
    """`batch` with `rows` after it, a row per prompt, (B + R); neither argument is changed.

    batch: B prompts, as VeRL's dataset collates them: tensors of shape (B, ...), a stack of values for every other
    column, and single values, which hold for the whole batch. rows: R added prompts, a value by column each.
    defaults: the value of a missing column, for a prompt of either kind; without one it is None, and zero in a tensor.
    """
    columns = dict(batch.items())
    names = dict.fromkeys([*columns, *defaults, *(name for row in rows for name in row)])
    joined: dict[str, Any] = {}
    for name in names:
        column, default = columns.get(name), defaults.get(name)
        if isinstance(column, torch.Tensor):
            joined[name] = torch.cat([column, column.new_zeros(len(rows), *column.shape[1:])])
        elif not isinstance(column, NonTensorData):
            present = [default] * len(batch) if column is None else [value.data for value in column.unbind(0)]
            joined[name] = present + [row.get(name, default) for row in rows]
    result = tu.get_tensordict(joined)
    for name, column in columns.items():
        if isinstance(column, NonTensorData):
            result[name] = column
    return result
