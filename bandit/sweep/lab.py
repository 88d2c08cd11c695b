"""The controlled experiment as a lab."""

from __future__ import annotations

from bandit.lab import Lab
from bandit.sweep.analysis import analyse
from bandit.sweep.config import PRESETS, REPLAY
from bandit.sweep.figures import draw
from bandit.sweep.train import COLUMNS, train

LAB = Lab(
    title="Controlled experiment",
    summary="Train every method, coefficient and seed on the paper's single task (Appendix E.1). Resumes.",
    presets=PRESETS,
    results={"sweep": COLUMNS},
    train=train,
    analyse=analyse,
    draw=draw,
    within=(REPLAY,),
)
