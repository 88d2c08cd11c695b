"""Finite groups as a lab."""

from __future__ import annotations

from bandit.finite_group.analysis import analyse
from bandit.finite_group.config import PRESETS
from bandit.finite_group.figures import draw
from bandit.finite_group.train import COLUMNS, train
from bandit.lab import Lab

LAB = Lab(
    title="Finite groups",
    summary="Sampled surrogates for several G beside the exact objective. Resumes.",
    presets=PRESETS,
    results={"finite_group": COLUMNS},
    train=train,
    analyse=analyse,
    draw=draw,
)
