"""The plasticity lab as one of the experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from cokl.support.experiment import Experiment, GalleryPicture, register

from bandit.plasticity.config import PRESETS, PlasticityConfig, TwoPhases
from cokl.support.verdicts import Claim


@register
class Plasticity(Experiment):
    """Phase 1 with each regularizer, then plain RL on another reward."""

    name, title, area = "plasticity", "Plasticity", "plasticity"
    command, order = "cokl bandit plasticity", 25
    summary = "Train with each regularizer, then on a changed reward without one; what can still be learned. Resumes."
    presets: ClassVar[Mapping[str, Any]] = PRESETS
    tables = ("plasticity.parquet",)
    pools_folders = True
    assumed_configs: ClassVar[tuple[type, ...]] = (TwoPhases, PlasticityConfig)
    assumed_modules: ClassVar[tuple[str, ...]] = ("bandit.plasticity.config", "bandit.plasticity.score")
    gallery: ClassVar[tuple[GalleryPicture, ...]] = (
        GalleryPicture("plasticity_schematic", "What a narrowed reward starts from"),
        GalleryPicture("plasticity_tradeoff", "Plasticity: correctness against what can still be learned"),
        GalleryPicture("plasticity_curves", "Plasticity: learning a changed reward"),
    )

    def claims(self, folder: Path) -> Sequence[Claim]:
        """What the title says."""
        from bandit.plasticity.claims import judge
        from bandit.plasticity.score import read_plasticity

        return judge(*read_plasticity(folder, PlasticityConfig))

    def section(self, folder: Path) -> Any:
        """Correctness against plasticity, learning curves, and the tables."""
        from bandit.plasticity.score import read_plasticity
        from bandit.plasticity.section import section

        return section(folder.name, *read_plasticity(folder, PlasticityConfig))
