"""Plasticity as a lab."""

from __future__ import annotations

from bandit.lab import Lab
from bandit.plasticity.analysis import analyse
from bandit.plasticity.config import PRESETS
from bandit.plasticity.figures import draw
from bandit.plasticity.train import COLUMNS, train

LAB = Lab(
    title="Plasticity",
    summary="Train with each regularizer, then on a changed reward without one: what is still learned. Resumes.",
    presets=PRESETS,
    results={"plasticity": COLUMNS},
    train=train,
    analyse=analyse,
    draw=draw,
)
