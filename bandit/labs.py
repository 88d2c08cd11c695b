"""Every lab by its name on the command line: this package's, and those that other packages' entry points name."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from bandit.finite_group import lab as finite_group
from bandit.lab import Lab
from bandit.plasticity import lab as plasticity
from bandit.sequences import lab as sequences
from bandit.shift import lab as shift
from bandit.sweep import lab as sweep
from bandit.sweep import robustness
from cokl.support.errors import InputError

LABS: dict[str, Lab] = {
    "sweep": sweep.LAB,
    "robustness": robustness.LAB,
    "shift": shift.LAB,
    "plasticity": plasticity.LAB,
    "sequences": sequences.LAB,
    "finite-group": finite_group.LAB,
}
ENTRY_POINTS = "cokl.labs"
"""The group in which another package names a `Lab`."""


@cache
def labs() -> dict[str, Lab]:
    """LABS and the entry points'. Raises InputError for an entry point that is no lab, or whose name is taken."""
    every = dict(LABS)
    for entry in entry_points(group=ENTRY_POINTS):
        lab = entry.load()
        if not isinstance(lab, Lab):
            raise InputError(f"entry point {entry.name} of {ENTRY_POINTS}: expected a bandit.lab.Lab, got {lab!r}")
        if entry.name in every:
            raise InputError(f"entry point {entry.name} of {ENTRY_POINTS}: that name is taken")
        every[entry.name] = lab
    return every
