"""The sequence lab's figure: retention against adaptation, as the task shift's."""

from __future__ import annotations

from dataclasses import replace

from bandit.lab import Tables
from bandit.sequences.analysis import levels
from bandit.sequences.config import SequenceConfig
from bandit.shift.analysis import diverged_note
from bandit.shift.figures import tradeoff
from figures.marks import Drawing


def draw(tables: Tables, config: SequenceConfig) -> dict[str, Drawing]:
    """The trade-off."""
    table = tables["sequences"]
    return {"sequences_tradeoff": replace(tradeoff(levels(table).assign(best=False)), note=diverged_note(table))}
