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
    """The trade-off of each mode."""
    table = tables["sequences"]
    search = levels(table).assign(best=False)
    return {
        f"sequences_tradeoff_{mode}": replace(tradeoff(rows), note=diverged_note(table))
        for mode, rows in search.groupby("mode", sort=False)
    }
