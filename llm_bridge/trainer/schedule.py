"""The regularizer's coefficient over training: constant, linear, or held to a target of the conditional KL.

Assumption beyond the paper: its coefficient is constant; a target is approached as in Ziegler et al. (2019,
arXiv:1909.08593), a step changing the coefficient by at most 2%, and a group's probability of being correct is
estimated with half an answer of either kind added, so that a group without a correct one has a finite logarithm.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cokl.support.errors import InputError
from cokl.support.files import read_json, write_text
from llm_bridge.trainer.streams import Minibatch, uid_of

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
        """The coefficient of a training step, of which there are `steps`; the first is 1."""
        if self.kind == "linear":
            done = (step - 1) / max(1, steps - 1)
            self.beta = self.start + (self.end - self.start) * min(1.0, done)
        return self.beta

    def observe(self, conditional_kl: float) -> None:
        """Move the next step's coefficient against the error of this step's conditional KL, if there is a target."""
        if self.kind == "target" and math.isfinite(conditional_kl):
            error = min(LARGEST_ERROR, max(-LARGEST_ERROR, conditional_kl / self.target - 1))
            self.beta *= 1 + GAIN * error

    def save(self, folder: Path) -> None:
        """Write the coefficient into a checkpoint's folder."""
        write_text(json.dumps({"beta": self.beta}), folder / self.FILE)

    def resume(self, folder: Path) -> None:
        """Go on with a checkpoint's coefficient where a step's does not follow from its number.

        Raises InputError if the checkpoint holds none.
        """
        if self.kind != "target":
            return
        if not (folder / self.FILE).is_file():
            raise InputError(f"{folder} holds no {self.FILE}: no run with a target saved it; start a new one")
        self.beta = float(read_json(folder / self.FILE, dict)["beta"])


def conditional_kl(
    minibatch: Minibatch, keys: Sequence[str], log_probs: Mapping[str, float], verdicts: Mapping[str, float]
) -> float:
    """KL(reference | correct || policy | correct) in nats, the mean of the whole groups among `keys`; NaN without one.

    Of the cached correct responses, log reference - log policy on average, and the logarithm of the policy's fraction
    of correct fresh ones over that of the cached ones. log_probs: sequence log-likelihoods under the policy.
    """
    found: dict[int, dict[str, list[str]]] = {}
    for key in minibatch.whole_groups(keys):
        place = minibatch.places[uid_of(key)]
        found.setdefault(place.prompt, {"reference": [], "rollout": []})[place.stream].append(key)
    estimates = []
    for rows in found.values():
        correct = [key for key in rows["reference"] if verdicts[key]]
        if correct and rows["rollout"]:
            gap = np.mean([minibatch.reference_log_prob(key) - log_probs[key] for key in correct])
            fresh = sum(verdicts[key] for key in rows["rollout"])
            policy, reference = (
                (count + 0.5) / (size + 1)
                for count, size in ((fresh, len(rows["rollout"])), (len(correct), len(rows["reference"])))
            )
            estimates.append(gap + math.log(policy / reference))
    return float(np.mean(estimates)) if estimates else math.nan
