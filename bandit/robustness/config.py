"""What of the sweep is varied, one field at a time; no heavy imports here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

from bandit.config import changed
from bandit.sweep.config import PRESETS as SWEEPS
from bandit.sweep.config import SweepConfig
from cokl.support.options import SOME, Bound, Names, Settings, at_least, require

ALTERNATIVES: dict[str, tuple[Any, ...]] = {
    "coverage_draws": (8, 256),
    "pretrain_learning_rate": (6e-4, 2.4e-3),
    "minibatch": ("epochs",),
    "init_scale": (0.5, 2.0),
    "adam_betas": ((0.9, 0.95), (0.9, 0.99)),
    "adam_epsilon": (1e-6,),
    "center_scale": (0.75, 1.5),
    "balanced_clusters": (True,),
    "shared_environment": (True,),
}
"""Other values of every field that is declared an assumption of the sweep, k of coverage@k among them."""


@dataclass(frozen=True)
class RobustnessConfig(Settings):
    """The sweep whose verdicts are put to the test, and how."""

    sweep: SweepConfig
    """The sweep at its defaults, with all its coefficients."""
    neighbours: Annotated[int, at_least(0)] = 1
    """Coefficients of the grid on either side of each method's matched one that are trained under an alternative."""
    fields: Annotated[
        Names, SOME, Bound(lambda name: name in ALTERNATIVES, f"some of {', '.join(ALTERNATIVES)}", each=True)
    ] = tuple(ALTERNATIVES)
    """Which assumptions to vary."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require("cokl" in self.sweep.methods, "methods", "cokl among them", ",".join(self.sweep.methods))

    def alternatives(self) -> dict[str, SweepConfig]:
        """Every alternative by its name, such as "init_scale-2.0"."""
        return {
            f"{field}-{'-'.join(map(str, value)) if isinstance(value, tuple) else value}": changed(
                self.sweep, {field: value}
            )
            for field in self.fields
            for value in ALTERNATIVES[field]
        }


PRESETS = {
    "paper": RobustnessConfig(SWEEPS["paper"]),
    "quick": RobustnessConfig(
        dataclasses.replace(
            SWEEPS["quick"],
            methods=("none", "entropy", "cokl"),
            betas=(0.1, 0.3),
            eval_interval=250,
        ),
        neighbours=0,
        fields=("coverage_draws", "init_scale", "center_scale"),
    ),
}
