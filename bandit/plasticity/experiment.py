"""The plasticity lab as one of the experiments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bandit.plasticity.config import PRESETS, PlasticityConfig
from cokl.support.experiment import Execution, Experiment, register

if TYPE_CHECKING:
    import pandas as pd

    from cokl.support.verdicts import Claim


@register
class Plasticity(Experiment):
    """Phase 1 with each regularizer, then plain RL on another reward."""

    name, title, area = "plasticity", "Plasticity", "plasticity"
    command, order = "cokl bandit plasticity", 25
    summary = "Train with each regularizer, then on a changed reward without one; what can still be learned. Resumes."
    presets = PRESETS
    folder_prefix = "plasticity-"
    tables = ("plasticity.parquet",)
    assumed_configs = (PlasticityConfig,)
    assumed_modules = ("bandit.plasticity.config", "bandit.plasticity.score")

    def train(self, config: PlasticityConfig, folder: Path, execution: Execution) -> pd.DataFrame:
        """The tidy table."""
        from bandit.plasticity.run import plasticity

        return plasticity(config, dataclasses.replace(execution, out=folder))

    def report(self, trained: pd.DataFrame, config: PlasticityConfig, folder: Path) -> str:
        """Every table, and the page of verdicts."""
        from bandit.plasticity.report import write

        return write(trained, config, folder)

    def figures(self, trained: pd.DataFrame, config: PlasticityConfig, folder: Path) -> Mapping[str, Any]:
        """Trade-off, learning curves and schematic."""
        from bandit.plasticity.figures import draw_all

        return draw_all(trained, config)

    def claims(self, folder: Path) -> Sequence[Claim]:
        """What the title says."""
        from bandit.plasticity.claims import judge
        from bandit.plasticity.score import read_plasticity

        return judge(*read_plasticity(folder))

    def section(self, folder: Path) -> Any:
        """Trade-off, learning curves and tables."""
        from bandit.plasticity.section import section

        return section(folder)
