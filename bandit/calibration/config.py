"""Which settings of the task-shift or sequence lab are searched for the paper's pattern, and with which shares of
term 2.

CoKL with a share s of its second term is s CoKL + (1 - s) replay: all of Eq. 9 at s = 1, correct-only forward KL at
s = 0. CoKL w/o term 1 with a share s is log Z at the coefficient s beta. No heavy imports here.

Assumption beyond the paper: the choice of settings to search, one or two of them changed at a time. All runs are
sampled, as the paper trains. GRPO's loss sets the scale of beta; the share stands for anything that makes the second
term weaker relative to that loss.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

from bandit.sequences.config import SequenceConfig
from bandit.shift.config import PAPER_BETA, ShiftConfig
from cokl.support.options import SOME, Bound, Coefficients, Names, Settings, at_least, require

REPLAY = "correct_forward_kl"
WITHOUT_TERM_1 = "cokl_without_term1"

_FORGETTING: dict[str, dict[str, Any]] = {
    "slow": {"new_learning_rate": 3e-4},
    "even": {},
    "fast": {"new_learning_rate": 3e-3},
}
_CONFLICTS: dict[str, dict[str, Any]] = {
    "apart": {},
    "same": {"cluster_overlap": 1.0},
    "same-narrow": {"cluster_overlap": 1.0, "hidden": (16, 16)},
}
CELLS: dict[str, dict[str, Any]] = {
    f"{speed}-{conflict}": {**_FORGETTING[speed], **_CONFLICTS[conflict]}
    for conflict in _CONFLICTS
    for speed in _FORGETTING
} | {
    "temperature-0.7": {"evaluation_temperature": 0.7},
    "few-prior-steps": {"prior_steps": 20},
    "buffer-64": {"buffer_size": 64},
    "buffer-2000": {"buffer_size": 2000},
}
"""What each setting changes of the lab: the learning rate of the new task, the same inputs for both tasks with disjoint
correct sets and a narrow network, the temperature of evaluation, the reference, and the passes over the buffer."""

_LENGTHS = (1, 3, 6, 12, 24)
_SUMS: dict[str, dict[str, Any]] = {
    f"tokens-{length}": {"length": length, "new_learning_rate": 3e-3} for length in _LENGTHS
}
SEQUENCE_CELLS = _SUMS | {f"{name}-mean": {**_SUMS[name], "token_reduction": "mean"} for name in [*_SUMS][1:]}
"""The same of the sequence lab: tokens of a response, and whether what a method adds sums over them or averages; with
a learning rate at which GRPO forgets responses of any length."""


def method_name(share: float) -> str:
    """CoKL with this share of its second term, in [0, 1]."""
    if share in (0, 1):
        return "cokl" if share else REPLAY
    return f"{share:g}cokl+{1 - share:g}{REPLAY}"


@dataclass(frozen=True)
class CalibrationConfig(Settings):
    """Settings, shares and seeds."""

    cells: Annotated[Names, SOME] = tuple(CELLS)
    """Settings of one lab: of the task shift, or of the sequence lab, tokens-T and tokens-T-mean with 1, 3, 6, 12 or 24
    tokens a response and what a method adds summed over them or averaged."""
    shares: Annotated[Coefficients, SOME, Bound(lambda share: 0 < share <= 1, "numbers in (0, 1]", each=True)] = (
        0.01,
        0.03,
        0.1,
        0.3,
        1.0,
    )
    """Shares of the second term, in (0, 1]; replay, which has none of it, is what they are compared with."""
    betas: Coefficients = (0.1, 0.3, 1.0, 3.0, 10.0)
    """Coefficients of all methods, the paper's 1 among them."""
    seeds: Annotated[int, at_least(1)] = 5
    """Reported seeds of a setting."""
    first_seed: int = 0
    """The first seed. Another one repeats the search with new random draws throughout."""
    selection_seeds: Annotated[int, at_least(1)] = 2
    """Further seeds, on which the neighbours of equal adaptation are chosen."""
    steps: Annotated[int, at_least(1)] = 300
    """Optimizer steps on the new task."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.cells:
            known = SEQUENCE_CELLS if self.of_sequences else CELLS
            require(name in known, "cells", f"some of {', '.join(CELLS)}, or some of {', '.join(SEQUENCE_CELLS)}", name)
        require(PAPER_BETA in self.betas, "betas", f"{PAPER_BETA:g} among them", self.betas)

    @property
    def of_sequences(self) -> bool:
        """Whether the settings are the sequence lab's."""
        return self.cells[0] in SEQUENCE_CELLS

    def experiment(self, cell: str) -> ShiftConfig | SequenceConfig:
        """The lab in one setting, with replay, every share, and all coefficients that w/o term 1 is looked at."""
        of_both: dict[str, Any] = {
            "mode": "sampled",
            "methods": ("none", REPLAY, *map(method_name, self.shares), WITHOUT_TERM_1),
            "betas": tuple(sorted({*self.betas, *(PAPER_BETA * share for share in self.shares)})),
            "seeds": self.seeds,
            "first_seed": self.first_seed,
            "selection_seeds": self.selection_seeds,
            "steps": self.steps,
            "eval_interval": self.steps,
        }
        if self.of_sequences:
            return SequenceConfig(**of_both, **SEQUENCE_CELLS[cell])
        return dataclasses.replace(ShiftConfig(**of_both, kl_sweep_methods=()), **CELLS[cell])


PRESETS = {
    "paper": CalibrationConfig(),
    "quick": CalibrationConfig(
        cells=("fast-apart", "fast-same"), shares=(0.1, 1.0), betas=(0.03, 0.1, 0.3, 1.0), seeds=4,
        selection_seeds=1, steps=100,
    ),
}  # fmt: skip
