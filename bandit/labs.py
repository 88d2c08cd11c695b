"""Every lab by its name on the command line: this package's, and those that other packages' entry points name."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

import bandit.finite_group.analysis
import bandit.finite_group.config
import bandit.finite_group.figures
import bandit.finite_group.train
import bandit.plasticity.analysis
import bandit.plasticity.config
import bandit.plasticity.figures
import bandit.plasticity.train
import bandit.sequences.analysis
import bandit.sequences.config
import bandit.sequences.figures
import bandit.sequences.train
import bandit.shift.analysis
import bandit.shift.config
import bandit.shift.figures
import bandit.shift.train
import bandit.sweep.analysis
import bandit.sweep.config
import bandit.sweep.figures
import bandit.sweep.robustness
import bandit.sweep.train
from bandit.lab import Lab
from cokl.support.errors import InputError

LABS: dict[str, Lab] = {
    "sweep": Lab(
        title="Controlled experiment",
        summary="Train every method, coefficient and seed on the paper's single task (Appendix E.1). Resumes.",
        presets=bandit.sweep.config.PRESETS,
        results={"sweep": bandit.sweep.train.COLUMNS},
        train=bandit.sweep.train.train,
        analyse=bandit.sweep.analysis.analyse,
        draw=bandit.sweep.figures.draw,
    ),
    "robustness": Lab(
        title="What the controlled experiment's verdicts rest on",
        summary="Vary each assumption of the sweep, one at a time, and say of each verdict whether it stands. Resumes.",
        presets=bandit.sweep.robustness.PRESETS,
        results={"robustness": bandit.sweep.robustness.COLUMNS},
        train=bandit.sweep.robustness.train,
        analyse=bandit.sweep.robustness.analyse,
        draw=bandit.sweep.robustness.draw,
    ),
    "shift": Lab(
        title="Task shift, in miniature",
        summary="Train on one task, then on another with each method: what is kept, what is learned. Resumes.",
        presets=bandit.shift.config.PRESETS,
        results={"shift": bandit.shift.train.COLUMNS},
        train=bandit.shift.train.train,
        analyse=bandit.shift.analysis.analyse,
        draw=bandit.shift.figures.draw,
    ),
    "plasticity": Lab(
        title="Plasticity",
        summary="Train with each regularizer, then on a changed reward without one: what is still learned. Resumes.",
        presets=bandit.plasticity.config.PRESETS,
        results={"plasticity": bandit.plasticity.train.COLUMNS},
        train=bandit.plasticity.train.train,
        analyse=bandit.plasticity.analysis.analyse,
        draw=bandit.plasticity.figures.draw,
    ),
    "sequences": Lab(
        title="Answers of many tokens",
        summary="The task shift with answers of many tokens, exactly and in samples. Resumes.",
        presets=bandit.sequences.config.PRESETS,
        results={"sequences": bandit.sequences.train.COLUMNS},
        train=bandit.sequences.train.train,
        analyse=bandit.sequences.analysis.analyse,
        draw=bandit.sequences.figures.draw,
    ),
    "finite-group": Lab(
        title="Finite groups",
        summary="Sampled surrogates for several G beside the exact objective. Resumes.",
        presets=bandit.finite_group.config.PRESETS,
        results={"finite_group": bandit.finite_group.train.COLUMNS},
        train=bandit.finite_group.train.train,
        analyse=bandit.finite_group.analysis.analyse,
        draw=bandit.finite_group.figures.draw,
    ),
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
