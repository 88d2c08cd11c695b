"""Which runs are measured, and how finely; no heavy imports here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from bandit.config import Count, Positive
from bandit.engine.two_tasks.config import Mode
from bandit.sequences.config import PRESETS as SEQUENCES
from bandit.sequences.config import SequenceConfig
from bandit.shift.config import PAPER_BETA, ShiftConfig
from bandit.shift.config import PRESETS as SHIFTS
from cokl.support.options import DIFFERENT, SOME, Bound, Names, Settings, at_least

LABS: dict[str, tuple[ShiftConfig | SequenceConfig, Mode]] = {
    "shift-exact": (SHIFTS["paper"], "exact"),
    "shift-sampled": (SHIFTS["paper"], "sampled"),
    "sequences-exact": (SEQUENCES["paper"], "exact"),
}
"""Every setting's configuration, its lab's paper preset, and its mode."""


@dataclass(frozen=True)
class InterferenceConfig(Settings):
    """CoKL and replay in the two-task labs, at one coefficient."""

    settings: Annotated[Names, SOME, DIFFERENT, Bound(LABS.__contains__, f"some of {', '.join(LABS)}", each=True)] = (
        tuple(LABS)
    )
    """Labs and modes, each as in its lab's paper preset."""
    coefficient: Positive = PAPER_BETA
    """The coefficient of both methods."""
    seeds: Count = 5
    """Seeds, from first_seed on, each with tasks of its own."""
    first_seed: Annotated[int, at_least(0)] = 0
    """The first seed."""
    prompts: Count = 192
    """Prior-task test prompts whose logit Z is followed, and as many of the buffer; fewer leave the mean tangent kernel
    to the chance of which clusters are drawn."""
    every: Annotated[int, at_least(6)] = 100
    """Steps between measurements; the last step is always measured."""


PRESETS = {"paper": InterferenceConfig(), "quick": InterferenceConfig(("shift-exact",), seeds=4, prompts=96, every=150)}
