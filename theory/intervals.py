"""Proofs over boxes: a sign that ball arithmetic decides on every piece of an adaptive subdivision is a theorem."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from theory.arithmetic import Ball, hull


class Proof(NamedTuple):
    """Outcome of one subdivision.

    boxes: evaluations made. undecided: boxes left without a decision. refuted: the claim is false on some box.
    lowest: the smallest certified lower bound of the function over all decided boxes, inf if none was decided.
    """

    boxes: int
    undecided: int
    refuted: bool
    lowest: float

    @property
    def holds(self) -> bool:
        return self.undecided == 0 and not self.refuted


def prove_positive(function: Callable[..., Ball], box: list[tuple[float, float]], max_boxes: int) -> Proof:
    """Prove `function(*balls) > 0` on the closed `box`, a (low, high) pair per argument, by bisecting undecided boxes.

    The axis that is widest relative to its initial width is halved. Stops at the first box where the function is
    certainly negative, and after `max_boxes` evaluations with whatever is still open counted as undecided. The function
    must be continuous on the box; a ball that holds no number (a division by zero, say) counts as not decided.
    """
    widths = [high - low or 1.0 for low, high in box]
    pending, boxes, lowest = [box], 0, math.inf
    while pending and boxes < max_boxes:
        piece = pending.pop()
        value = function(*(hull(low, high) for low, high in piece))
        boxes += 1
        if value > 0:
            lowest = min(lowest, float(value.lower()))
        elif value < 0:
            return Proof(boxes, len(pending), True, float(value.lower()))
        else:
            axis = max(range(len(piece)), key=lambda i: (piece[i][1] - piece[i][0]) / widths[i])
            low, high = piece[axis]
            middle = (low + high) / 2
            pending += [[*piece[:axis], half, *piece[axis + 1 :]] for half in ((low, middle), (middle, high))]
    return Proof(boxes, len(pending), False, lowest)
