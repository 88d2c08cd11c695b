"""The experiment's numbers, settled with GRPO alone on the pilot seed, which nothing else uses. No heavy imports."""

from __future__ import annotations

from dataclasses import dataclass

from llm_bridge.experiment.studies.config import StudyConfig

GRID: dict[str, tuple[float, ...]] = {
    "grpo": (0.0,),
    "reverse_kl": (0.03, 0.1, 0.3),
    "entropy": (0.01, 0.03, 0.1),
    "correct_forward_kl": (0.1, 0.3, 1.0),
    "cokl": (0.1, 0.3, 1.0),
}
"""Stage 1's methods and their coefficients; "entropy" is VeRL's own bonus, and "grpo" has no regularizer."""
START = "start"
"""Stage 2 without a stage 1, for comparison."""
RIVALS = ("reverse_kl", "correct_forward_kl")
"""The primary measurements, declared before any run: CoKL's mean accuracy over stage 2 minus that of each, in points,
paired over the reported seeds. Higher is what the paper's title leads to expect."""
MARGIN = 2.0
"""Points. A method's coefficient is the largest of its grid with which the accuracy after stage 1, averaged over the
selection seeds, is at most this far below that of GRPO alone; the smallest if there is none."""


@dataclass(frozen=True)
class PlasticityConfig(StudyConfig):
    """Batch sizes count prompts."""

    selection_seeds: tuple[int, ...] = (100, 101)
    reported_seeds: tuple[int, ...] = (110, 111, 112, 113, 114)
    pretraining_steps: int = 1500
    cached: int = 32
    prompts: int = 64
    """Training prompts."""
    cached_per_prompt: int = 4
    """How many of its cached responses a prompt brings to a step."""
    steps: tuple[int, int] = (40, 30)
    """Of either stage."""
