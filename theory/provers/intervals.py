"""Proofs over boxes: a sign that interval arithmetic decides on every box of an adaptive subdivision is a theorem."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from flint import arb

from theory.provers.arithmetic import Interval

Box = list[tuple[float, float]]
"""A (low, high) pair per argument."""


class Proof(NamedTuple):
    """Outcome of one subdivision.

    boxes: evaluations made. undecided: boxes left without a decision. refuted: the claim is false on some box.
    where: a box that was refuted or left open, None if there is none.
    """

    boxes: int
    undecided: int
    refuted: bool
    where: Box | None = None

    @property
    def holds(self) -> bool:
        """Whether the sign is decided on every box, as claimed."""
        return self.undecided == 0 and not self.refuted

    @property
    def refusal(self) -> str | None:
        """Why nothing was proved, with a box to look at; None for a proof."""
        if self.holds:
            return None
        box = " x ".join(f"[{low:.6g}, {high:.6g}]" for low, high in self.where or ())
        return f"refuted on {box}" if self.refuted else f"{self.undecided} boxes undecided, one of them {box}"


def prove_positive(function: Callable[..., Interval], box: Box, max_boxes: int) -> Proof:
    """Prove `function(*intervals) > 0` on the closed `box`, a (low, high) pair per argument, by bisecting what is
    undecided.

    An undecided box is halved along each axis in turn and the halves with the tightest values are kept. Stops at the
    first box where the function is certainly negative, and after `max_boxes` evaluations with whatever is still open
    counted as undecided. The function must be continuous on the box; an undefined value (a division by zero, say)
    counts as not decided. Raises ValueError for a box that is empty or not finite.
    """
    if not box or not all(-math.inf < low <= high < math.inf for low, high in box):
        raise ValueError(f"box: expected finite ends, the lower one first, on at least one axis, got {box}")
    pending = [(box, _evaluate(function, box))]
    boxes = 1
    while pending:
        sub_box, value = pending.pop()
        splittable = [axis for axis, (low, high) in enumerate(sub_box) if low < (low + high) / 2 < high]
        if value > 0:
            continue
        if value.high <= 0:
            return Proof(boxes, len(pending), True, sub_box)
        if boxes >= max_boxes or not splittable:
            if any(other.high <= 0 for _, other in pending):
                continue  # the claim is false there, whatever it is here
            return Proof(boxes, 1 + sum(not other > 0 for _, other in pending), False, sub_box)
        splits = {}
        for axis in splittable:
            low, high = sub_box[axis]
            middle = (low + high) / 2
            halves = [[*sub_box[:axis], half, *sub_box[axis + 1 :]] for half in ((low, middle), (middle, high))]
            splits[axis] = [(half, _evaluate(function, half)) for half in halves]
            boxes += 2
        pending += splits[min(splits, key=lambda axis: (_looseness(splits[axis]), -_width(box, sub_box, axis)))]
    return Proof(boxes, 0, False)


def _evaluate(function: Callable[..., Interval], box: Box) -> Interval:
    return function(*(Interval(arb(low), arb(high)) for low, high in box))


def _looseness(halves: list[tuple[Box, Interval]]) -> float:
    """Total width of the values that are still undecided; inf if one is undefined."""
    return sum(0.0 if value > 0 else value.width for _, value in halves)


def _width(box: Box, sub_box: Box, axis: int) -> float:
    """Width of `sub_box` along `axis`, relative to that of the whole box."""
    return (sub_box[axis][1] - sub_box[axis][0]) / (box[axis][1] - box[axis][0])
