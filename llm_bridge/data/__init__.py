"""Prompts and answers of all six sets, in the Parquet format that VeRL's RLHFDataset reads.

No heavy imports here: the command line loads the configuration for its help.

Assumption beyond the paper: mathematics is drawn from Nemotron-Math-v2's split of low reasoning budget. The others add
harder problems; all three are about 200 GB.
"""

from __future__ import annotations

from dataclasses import dataclass

from cokl.support.assumptions import assumption
from cokl.support.options import Settings


@dataclass(frozen=True)
class DataConfig(Settings):
    """What decides which prompts are in the six sets."""

    draw_seed: int = assumption(0, "which problems are drawn, and which of them are for validation")
    """Seed of the draw of the mathematical training and validation problems."""
