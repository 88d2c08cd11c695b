"""The regularizer's coefficient over training: constant, linear, or held to a target of the conditional KL.

Assumption beyond the paper: the experiment's coefficient is constant. A target is approached as in Ziegler et al.
(2019, arXiv:1909.08593): one step changes the coefficient by at most 2%.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from cokl.support.errors import InputError
from cokl.support.files import read_json, write_text

SCHEDULES = ("constant", "linear", "target")
GAIN, LARGEST_ERROR = 0.1, 0.2


class BetaSchedule:
    """beta: the first step's coefficient, then the current one's. end: the last step's, if linear. target: conditional
    KL in nats, if it is held.
    """

    FILE = "cokl_beta.json"
    """In a checkpoint's folder."""

    def __init__(self, kind: str, beta: float, end: float, target: float) -> None:
        self.kind, self.beta, self.start, self.end, self.target = kind, beta, beta, end, target

    def begin(self, step: int, steps: int) -> float:
        """The coefficient of training step `step`, 1 to `steps`."""
        if self.kind == "linear":
            done = (step - 1) / max(1, steps - 1)
            self.beta = self.start + (self.end - self.start) * min(1.0, done)
        return self.beta

    def observe(self, conditional_kl: float) -> None:
        """Move the next step's coefficient against the error of this step's conditional KL, if there is a target.

        conditional_kl: nats; a value that is not finite changes nothing.
        """
        if self.kind == "target" and math.isfinite(conditional_kl):
            error = min(LARGEST_ERROR, max(-LARGEST_ERROR, conditional_kl / self.target - 1))
            self.beta *= 1 + GAIN * error

    def save(self, folder: Path) -> None:
        """Write the coefficient into a checkpoint's folder."""
        write_text(json.dumps({"beta": self.beta}), folder / self.FILE)

    def resume(self, folder: Path) -> None:
        """Resume with a checkpoint's coefficient where a step's does not follow from its number.

        Raises InputError if the checkpoint holds none.
        """
        if self.kind != "target":
            return
        if not (folder / self.FILE).is_file():
            raise InputError(f"{folder} holds no {self.FILE}: no run with a target saved it; start a new one")
        self.beta = float(read_json(folder / self.FILE, dict)["beta"])
