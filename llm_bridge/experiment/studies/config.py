"""What every study's configuration has. No heavy imports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cokl.support.options import Settings

Role = Literal["selection", "reported", "again"]
"""Of a seed: it chooses coefficients, is reported, or belongs to a second report with new random draws throughout."""


@dataclass(frozen=True)
class StudyConfig(Settings):
    """Batch sizes count prompts, lengths count tokens."""

    selection_seeds: tuple[int, ...]
    """Of the runs that choose coefficients."""
    reported_seeds: tuple[int, ...]
    """Of the runs that are reported; with a seed everything is another, starting model and prompts included."""
    pretraining_steps: int
    """Supervised steps that make a starting model."""
    batch: int = 16
    """Prompts of a step."""
    group_size: int = 8
    """Rollouts per prompt."""
    cached: int = 8
    """Responses of the starting model to each prompt of the buffer."""
    learning_rate: float = 1e-3
    """AdamW's."""
    max_response_length: int = 10
    """An answer has six tokens, a chat reply ten."""

    @property
    def seeds(self) -> dict[Role, tuple[int, ...]]:
        """By role, those for selection first."""
        return {"selection": self.selection_seeds, "reported": self.reported_seeds}
