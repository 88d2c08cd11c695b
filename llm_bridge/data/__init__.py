"""Prompts and answers of all six sets, in the Parquet format that VeRL's RLHFDataset reads.

No heavy imports here: the command line loads the configuration for its help.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cokl.support.assumptions import assumption
from cokl.support.options import SOME, Bound, Names, Settings

BUDGETS = ("low", "medium", "high")
"""Reasoning budgets, the splits of Nemotron-Math-v2."""


@dataclass(frozen=True)
class DataConfig(Settings):
    """What decides which prompts are in the six sets. Raises InputError for no budget, or an unknown one."""

    draw_seed: int = assumption(0, "which problems are drawn, and which of them are for validation")
    """Seed of the draw of the mathematical training and validation problems."""
    budgets: Annotated[
        Names, SOME, Bound(lambda budget: budget in BUDGETS, f"some of {', '.join(BUDGETS)}", each=True)
    ] = assumption(("low",), "medium and high add harder problems; all three are about 200 GB")
    """Reasoning budgets (splits of Nemotron-Math-v2) that problems are drawn from: low, medium, high."""
