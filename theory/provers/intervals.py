"""Proofs over boxes: a sign that interval arithmetic decides on every piece of an adaptive subdivision is a theorem."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from flint import arb

from theory.provers.arithmetic import Interval


class Proof(NamedTuple):
    """Outcome of one subdivision.

    boxes: evaluations made. undecided: boxes left without a decision. refuted: the claim is false on some box.
    lowest: the smallest certified lower bound of the function over all decided boxes (inf if none was decided), or an
        upper bound on the refuting box.
    """

    boxes: int
    undecided: int
    refuted: bool
    lowest: float

    @property
    def holds(self) -> bool:
        return self.undecided == 0 and not self.refuted


def prove_positive(function: Callable[..., Interval], box: list[tuple[float, float]], max_boxes: int) -> Proof:
    """Prove `function(*intervals) > 0` on the closed `box`, a (low, high) pair per argument, by bisecting what is
    undecided.

    An undecided box is halved along each axis in turn and the halves with the tightest values are kept. Stops at the
    first box where the function is certainly negative, and after `max_boxes` evaluations with whatever is still open
    counted as undecided. The function must be continuous on the box; an undefined value (a division by zero, say)
    counts as not decided.
    """
    lowest = math.inf
    pending = [(box, _evaluate(function, box))]
    boxes = 1
    while pending:
        piece, value = pending.pop()
        if value > 0:
            lowest = min(lowest, float(value.low))
        elif value < 0:
            return Proof(boxes, len(pending), True, float(value.high))
        elif boxes >= max_boxes:
            return Proof(boxes, 1 + sum(not value > 0 for _, value in pending), False, lowest)
        else:
            splits = []
            for axis, (low, high) in enumerate(piece):
                middle = (low + high) / 2
                halves = [[*piece[:axis], half, *piece[axis + 1 :]] for half in ((low, middle), (middle, high))]
                splits.append([(half, _evaluate(function, half)) for half in halves])
                boxes += 2
            pending += min(enumerate(splits), key=lambda split: (_looseness(split[1]), -_width(box, piece, split[0])))[
                1
            ]
    return Proof(boxes, 0, False, lowest)


def _evaluate(function: Callable[..., Interval], box: list[tuple[float, float]]) -> Interval:
    return function(*(Interval(arb(low), arb(high)) for low, high in box))


def _looseness(halves: list[tuple[list[tuple[float, float]], Interval]]) -> float:
    """Total width of the values that are still undecided; inf if one is undefined."""
    return sum(0.0 if value > 0 else value.width for _, value in halves)


def _width(box: list[tuple[float, float]], piece: list[tuple[float, float]], axis: int) -> float:
    """Width of `piece` along `axis`, relative to that of the whole box."""
    return (piece[axis][1] - piece[axis][0]) / (box[axis][1] - box[axis][0])
