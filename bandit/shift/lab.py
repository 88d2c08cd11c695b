"""The task shift as a lab."""

from __future__ import annotations

from bandit.lab import Lab
from bandit.shift.analysis import analyse
from bandit.shift.config import PRESETS
from bandit.shift.figures import draw
from bandit.shift.train import COLUMNS, train

LAB = Lab(
    title="Task shift, in miniature",
    summary="Train on one task, then on another with each method: what is kept, what is learned. Resumes.",
    presets=PRESETS,
    results={"shift": COLUMNS},
    train=train,
    analyse=analyse,
    draw=draw,
)
