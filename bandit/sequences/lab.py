"""Answers of many tokens as a lab."""

from __future__ import annotations

from bandit.lab import Lab
from bandit.sequences.analysis import analyse
from bandit.sequences.config import PRESETS
from bandit.sequences.figures import draw
from bandit.sequences.train import COLUMNS, train

LAB = Lab(
    title="Answers of many tokens",
    summary="The task shift with answers of many tokens, exactly and in samples. Resumes.",
    presets=PRESETS,
    results={"sequences": COLUMNS},
    train=train,
    analyse=analyse,
    draw=draw,
)
