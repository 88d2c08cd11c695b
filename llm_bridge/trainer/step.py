"""The rows of one optimizer step, and what the regularizer weighs them by."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transfer_queue import KVBatchMeta

from cokl.groups import RegularizationRows, RowIndex


@dataclass(frozen=True, eq=False)
class Step:
    """R rows of VeRL's batch, in its order.

    batch: where they lie in VeRL's queue. rows: their likelihoods and verdicts, and the index of the groups, with row
    numbers from 0 to R - 1. masks: (T,) each, 1 on the tokens that the policy wrote. old_log_probs: (T,) each, in nats
    per token, the denominators of VeRL's ratios. added: (R,), True where a row is the regularizer's alone. sequences:
    R values, equal where prompt and response have the same tokens.
    """

    batch: KVBatchMeta
    rows: RegularizationRows
    masks: list[Tensor]
    old_log_probs: list[Tensor]
    added: Tensor
    sequences: list[Hashable]

    def part(self, start: int, stop: int) -> Step:
        """The rows `start` to `stop - 1`, with the groups that are whole among them."""
        here, rows = slice(start, stop), self.rows
        part = RegularizationRows(
            index=RowIndex(*(table - start for table in rows.index.within(start, stop))),
            log_probs=rows.log_probs[here],
            rewards=rows.rewards[here],
            reference_log_probs=None if rows.reference_log_probs is None else rows.reference_log_probs[here],
            tokens=None if rows.tokens is None else rows.tokens[here],
        )
        batch = self.batch.select_keys(self.batch.keys[here])
        columns = self.masks[here], self.old_log_probs[here], self.added[here], self.sequences[here]
        return Step(batch, part, *columns)


def row_sums(rows: Sequence[Tensor], masks: Sequence[Tensor]) -> Tensor:
    """(R,): sums over the tokens of each row that the policy wrote. rows, masks: (T,) each."""
    return torch.stack([(row.double() * mask).sum() for row, mask in zip(rows, masks, strict=True)])


def lengths(masks: Sequence[Tensor]) -> Tensor:
    """(R,): how many tokens of each row the policy wrote. masks: (T,) each."""
    return torch.stack([mask.sum() for mask in masks]).double()
