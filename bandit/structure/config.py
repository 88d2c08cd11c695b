"""Three maps of the structure of correctness, each over one knob of a lab on two tasks; no heavy imports here.

success: a verifier that errs on prior prompts. tokens: answers of T tokens of which d decide, named d-of-T.
reference: the paper's reference, prompts and passes, and the reverse KL's estimators.

The predictions were written before any of it ran. To first order replay adds beta |grad log Z|^2 to log Z beyond what
CoKL's step does (theory, `replay-adds-mass`), so CoKL is behind wherever the new task's push on Z is one that matters:

- A verifier that errs: grad log Z shrinks by the factor (p1 - p0) Z / (p0 + (p1 - p0) Z), to a half or a third at
  p0 = 0.5. A tabular softmax under a constant push u comes to rest where Z = P_ref - u with replay and P = P_ref - u
  with CoKL, where P = Z / (Z + p0 (1 - Z)). For u = 0.15 and a reference at 0.9 these are 0.80 and 0.66 in Z.
- Deciding tokens: style changes nothing in grad log Z, but GRPO's push on a deciding token falls as 1 / T beside a
  regularizer that sums over tokens. At 48 tokens neither method loses what both were given.
- The reference: the lower its Z, the larger is |grad log Z|.

Assumption beyond the paper: the choice of settings in these maps. CoKL w/o term 1 sees as many prompts per update as
CoKL does. With 600 steps the map of the reference has E.3's numbers: 512 prompts in the buffer, and 64 groups of the
new task beside 16 of the prior one. CoKL's 8 prompts per update then make some 10 passes over the prompts that the
filter leaves; replay's 16 make twice as many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from bandit.config import changed
from bandit.sequences.config import SequenceConfig
from bandit.shift.config import PAPER_BETA, ShiftConfig
from cokl.support.options import Coefficients, Names, Settings, at_least, require

REPLAY, COKL = "correct_forward_kl", "cokl"
WITHOUT_TERM_1, REVERSE_KL = "cokl_without_term1", "reverse_kl"
REVERSE_BETAS = (1e-3, 1e-2, 1.0)
"""E.3's search over the reverse KL's coefficients."""

MapName = Literal["success", "tokens", "reference"]
Outcome = Literal["behind", "equal", "ahead"]
"""CoKL's retention beside replay's at the paper's coefficient; "equal" is within 5 points."""


class Cell(NamedTuple):
    """What a setting changes of its lab, and what was predicted of it; "" where CoKL is not trained."""

    changes: Mapping[str, Any]
    prediction: Outcome | Literal[""]


class Map(NamedTuple):
    """Settings of one lab by name, and the methods that all of them train unless they say otherwise."""

    lab: type[ShiftConfig] | type[SequenceConfig]
    methods: tuple[str, ...]
    cells: Mapping[str, Cell]


_METHODS = ("none", REPLAY, COKL, WITHOUT_TERM_1)
_FORGETTING = {"new_learning_rate": 3e-3}
_DECIDING: tuple[tuple[int, int, Outcome], ...] = (
    (1, 1, "behind"),
    (12, 12, "behind"),
    (4, 12, "behind"),
    (1, 12, "behind"),
    (1, 48, "equal"),
)
"""d, T, and the prediction."""
_REFERENCES = {"early": 25, "middle": 40, "late": 60}
"""RL steps on the prior task. In one seed the mean correctness over test prompts is then 0.29, 0.45 and 0.60; after 40
steps a tenth of the prompts are below 0.17 and a tenth above 0.80.
"""

MAPS: dict[MapName, Map] = {
    "success": Map(
        ShiftConfig,
        _METHODS,
        {
            **{f"wrong-{wrong:g}": Cell({"success_of_wrong": wrong}, "behind") for wrong in (0.0, 0.1, 0.2, 0.3, 0.5)},
            "wrong-0.2-right-0.8": Cell({"success_of_wrong": 0.2, "success_of_right": 0.8}, "behind"),
        },
    ),
    "tokens": Map(
        SequenceConfig,
        _METHODS,
        {
            f"{deciding}-of-{length}": Cell({"deciding": deciding, "length": length, **_FORGETTING}, prediction)
            for deciding, length, prediction in _DECIDING
        },
    ),
    "reference": Map(
        ShiftConfig,
        (*_METHODS, REVERSE_KL),
        {name: Cell({"prior_steps": steps}, "behind") for name, steps in _REFERENCES.items()}
        | {
            f"middle-{estimator}": Cell(
                {
                    "prior_steps": _REFERENCES["middle"],
                    "methods": ("none", REVERSE_KL),
                    "regularizer_options": (f"{REVERSE_KL}.estimator={estimator}",),
                },
                "",
            )
            for estimator in ("k1", "k3")
        },
    ),
}


@dataclass(frozen=True)
class StructureConfig(Settings):
    """One map, its coefficients and its seeds."""

    map: MapName = "success"
    """success: a verifier that errs on prior prompts; tokens: how many of an answer's tokens decide; reference: its
    correctness, with the reverse KL as VeRL's losses."""
    cells: Names = ()
    """Settings of the map; all if not given."""
    betas: Coefficients = (0.1, 0.3, 1.0, 3.0, 10.0)
    """Coefficients of CoKL and replay, the paper's 1 among them; w/o term 1 has 1, the reverse KL 0.001, 0.01, 1."""
    seeds: Annotated[int, at_least(1)] = 5
    """Reported seeds of a setting."""
    first_seed: Annotated[int, at_least(0)] = 0
    """The first seed. Another one repeats the map with new random draws throughout."""
    selection_seeds: Annotated[int, at_least(1)] = 2
    """Further seeds, on which the neighbours of equal adaptation are chosen."""
    steps: Annotated[int, at_least(1)] = 300
    """Optimizer steps on the new task."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = MAPS[self.map].cells
        for name in self.cells:
            require(name in known, "cells", f"some of {', '.join(known)}", name)
        trained = any(cell.prediction for cell in self.chosen.values())
        require(trained, "cells", "one that trains CoKL among them", ", ".join(self.cells))
        require(PAPER_BETA in self.betas, "betas", f"{PAPER_BETA:g} among them", self.betas)

    @property
    def chosen(self) -> dict[str, Cell]:
        """The settings that are trained."""
        known = MAPS[self.map].cells
        return {name: known[name] for name in self.cells or known}

    def experiment(self, cell: str) -> ShiftConfig | SequenceConfig:
        """The lab in one setting, with all coefficients of any method."""
        lab, methods, cells = MAPS[self.map]
        shared: dict[str, Any] = {
            "mode": "sampled",
            "methods": methods,
            "betas": tuple(sorted({*self.betas, *REVERSE_BETAS})),
            "seeds": self.seeds,
            "first_seed": self.first_seed,
            "selection_seeds": self.selection_seeds,
            "steps": self.steps,
            "eval_interval": self.steps,
        }
        if lab is ShiftConfig:
            shared["kl_sweep_methods"] = ()
        return changed(lab(**shared), cells[cell].changes)


PRESETS = {
    "paper": StructureConfig(),
    "quick": StructureConfig(
        cells=("wrong-0", "wrong-0.5"), betas=(0.1, 1.0, 3.0), seeds=4, selection_seeds=1, steps=100
    ),
}
