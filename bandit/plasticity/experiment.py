"""The plasticity lab as one of the experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from bandit.plasticity.config import PRESETS, PlasticityConfig, TwoPhases
from bandit.plasticity.sequences.config import PRESETS as SEQUENCE_PRESETS
from bandit.plasticity.sequences.config import SequencePlasticityConfig
from cokl.support.experiment import Execution, Experiment, GalleryPicture, register
from cokl.support.files import read_json
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

    def holds(self, folder: Path) -> bool:
        """Of two labs, which leave the same files, each its own."""
        return ("environment" in read_json(folder / "config.json", dict)) == hasattr(
            self.presets["paper"], "environment"
        )

    def claims(self, folder: Path) -> Sequence[Claim]:
        """What the title says."""
        from bandit.plasticity.claims import judge
        from bandit.plasticity.score import read_plasticity

        return judge(*read_plasticity(folder, type(self.presets["paper"])))

    def section(self, folder: Path) -> Any:
        """Correctness against plasticity, learning curves, and the tables."""
        from bandit.plasticity.score import read_plasticity
        from bandit.plasticity.section import section

        return section(folder.name, *read_plasticity(folder, type(self.presets["paper"])))


@register
class PlasticitySequences(Plasticity):
    """Phase 1 and phase 2 where an answer is a sequence of tokens."""

    name, title, area = "plasticity_sequences", "Plasticity with answers of many tokens", "plasticity of sequences"
    command, order = "cokl bandit plasticity-sequences", 31
    summary = "The plasticity lab with answers of many tokens, in samples. Resumes."
    presets = SEQUENCE_PRESETS
    assumed_configs = (SequencePlasticityConfig,)
    assumed_modules = ("bandit.plasticity.sequences.config",)
    gallery = (GalleryPicture("plasticity_sequences_curves", "Plasticity with answers of many tokens"),)

    def train(self, config: SequencePlasticityConfig, execution: Execution) -> Any:
        from bandit.plasticity.run import plasticity
        from bandit.plasticity.sequences.train import Sequences

        return plasticity(config, execution, space=Sequences)

    def figures(self, trained: Any, config: Any, folder: Path) -> Mapping[str, Any]:
        """The trade-off and the learning curves."""
        drawn = super().figures(trained, config, folder)
        return {f"plasticity_sequences_{name}": drawn[f"plasticity_{name}"] for name in ("tradeoff", "curves")}
