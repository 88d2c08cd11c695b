"""The plasticity lab with answers of many tokens as one of the experiments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bandit.plasticity.experiment import Plasticity
from bandit.plasticity_sequences.config import PRESETS, SequencePlasticityConfig
from cokl.support.experiment import Execution, GalleryPicture, register


@register
class PlasticitySequences(Plasticity):
    """Phase 1 and phase 2 where an answer is a sequence of tokens."""

    name, title, area = "plasticity_sequences", "Plasticity with answers of many tokens", "plasticity of sequences"
    command, order = "cokl bandit plasticity-sequences", 31
    summary = "The plasticity lab with answers of many tokens, in samples. Resumes."
    presets = PRESETS
    folder_prefix = "plasticity-sequences-"
    assumed_configs = (SequencePlasticityConfig,)
    assumed_modules = ("bandit.plasticity_sequences.config",)
    gallery = (GalleryPicture("plasticity_sequences_curves", "Plasticity with answers of many tokens"),)

    def train(self, config: SequencePlasticityConfig, execution: Execution) -> Any:
        """The tidy table."""
        from bandit.plasticity.run import plasticity
        from bandit.plasticity_sequences.train import Sequences

        return plasticity(config, execution, space=Sequences)

    def figures(self, trained: Any, config: Any, folder: Path) -> Mapping[str, Any]:
        """The trade-off and the learning curves."""
        drawn = super().figures(trained, config, folder)
        return {f"plasticity_sequences_{name}": drawn[f"plasticity_{name}"] for name in ("tradeoff", "curves")}
