"""The study's numbers. No heavy imports.

Assumptions beyond the paper: the base is the pretrained model itself, without a math stage, so that its correctness is
about a half; Math Avg counts pairs alone as correct, summed exactly over all of them, at temperature 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from llm_bridge.experiment.studies.config import Role, StudyConfig

BETAS = (0.01, 0.04, 0.2, 1.0)
GRID: dict[str, tuple[float, ...]] = {
    "grpo": (0.0,),
    "reverse_kl": BETAS,
    "forward_kl": BETAS,
    "correct_forward_kl": BETAS,
    "cokl": BETAS,
}
"""Methods and the coefficients that are searched."""
ABLATION = "cokl_without_term1"
BASELINE = "cokl_baseline"
"""CoKL with a baseline in its second term, `cokl.baseline=True`, which is beyond the paper."""
VARIANTS = (ABLATION, BASELINE)
"""Of CoKL, with its coefficient. They are reported."""
AGAIN = ("grpo", "correct_forward_kl", "cokl", BASELINE)
"""Methods of the second report."""
RIVAL = "correct_forward_kl"
"""The primary measurement, declared before any run: raw Math Avg, CoKL's minus replay's, paired over the seeds."""
RIGHT = 0.6
"""`Study.right`, which sets the base's correctness."""
MARGIN = 3.0
"""Points. A method's coefficient is the one that keeps most of Math Avg among those whose chat score, averaged over the
selection seeds, is at most this far below that of GRPO alone; the smallest if there is none."""


@dataclass(frozen=True)
class StrengthConfig(StudyConfig):
    """Batch sizes count prompts; those of a step are chat prompts."""

    selection_seeds: tuple[int, ...] = (200, 201)
    reported_seeds: tuple[int, ...] = (210, 211, 212, 213, 214)
    again_seeds: tuple[int, ...] = (220, 221, 222, 223, 224)
    """Of the second report, by fewer methods."""
    pretraining_steps: int = 3000
    learning_rate: float = 6e-4
    max_response_length: int = 16
    buffer_prompts: int = 32
    """Math prompts with cached responses, which are gone through several times."""
    kl_groups: int = 4
    """Groups of math responses in a step, a quarter of the chat groups."""
    steps: int = 80
    """Of the chat stage."""
    chat_samples: int = 8
    """Responses to each of the 64 chat prompts that the chat score is a mean over."""

    @property
    def seeds(self) -> dict[Role, tuple[int, ...]]:
        """Those of the second report too."""
        return {**super().seeds, "again": self.again_seeds}
