"""Configuration of the task-shift lab: Appendix E.3 in miniature. No heavy imports here.

What the paper does not say, or what only a simulator has, is declared with `assumption`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from bandit.config import EnvironmentConfig
from bandit.engine.two_tasks.config import TwoTaskConfig
from cokl.names import canonical
from cokl.support.assumptions import assumption
from cokl.support.options import Bound, Integers, Names, Stored, require

PAPER_BETA = 1.0
"""The coefficient of CoKL, of its ablations and of the forward KLs in the paper's tables (E.3)."""

Share = Annotated[float, Bound(lambda share: 0 <= share < 1, "a number in [0, 1)")]


@dataclass(frozen=True)
class ShiftConfig(TwoTaskConfig):
    """Which runs to train on two task families, and how."""

    kl_sweep: Annotated[Integers, Bound(lambda size: size >= 1, "sizes of at least 1", each=True)] = (8, 16, 32, 64)
    """Prompts per update in the KL-batch sweep."""
    kl_sweep_methods: Annotated[Names, Stored(canonical)] = ("cokl", "correct_forward_kl")
    """Methods in the KL-batch sweep, which runs on the reported seeds and at coefficient 1."""
    success_of_wrong: Share = assumption(
        0.0, "the share of pi+ that are wrong responses, which the new task moves freely"
    )
    """Chance that a wrong response to a prior prompt counts as correct, in [0, 1)."""
    dtype: Literal["float32", "float64"] = "float32"
    """Arithmetic of training and evaluation."""
    environment: EnvironmentConfig = field(
        default_factory=lambda: EnvironmentConfig(
            clusters=24,
            input_dim=32,
            noise=1.4,
            actions=64,
            correct_actions=8,
            correct_mass=0.1,
            train_inputs=4000,
            test_inputs=500,
        )
    )
    """Either task family's clusters, oracle and inputs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        enough = self.environment.train_inputs
        require(self.buffer_size <= enough, "buffer_size", f"at most the {enough} training inputs", self.buffer_size)
        shared = self.environment.shared_environment
        require(not shared, "environment.shared_environment", "False: each seed draws its own two tasks", shared)
        correct, most = self.environment.correct_actions, self.environment.actions // 2
        require(correct <= most, "environment.correct_actions", f"at most {most}, half of the actions", correct)


PRESETS: dict[str, ShiftConfig] = {
    "paper": ShiftConfig(),
    "quick": ShiftConfig(
        mode="sampled",
        methods=("none", "reverse_kl", "forward_kl", "correct_forward_kl", "cokl", "cokl_without_term1"),
        betas=(0.001, 0.1, 1.0, 3.0),
        seeds=4,
        selection_seeds=1,
        steps=200,
        eval_interval=50,
        kl_sweep_methods=(),
        pretrain_steps=300,
    ),
    # Half of the wrong answers to prior prompts pass.
    "erring-verifier": ShiftConfig(
        mode="sampled",
        methods=("none", "correct_forward_kl", "cokl", "cokl_without_term1"),
        betas=(0.1, 0.3, 1.0, 3.0, 10.0),
        selection_seeds=2,
        steps=300,
        eval_interval=300,
        kl_sweep_methods=(),
        success_of_wrong=0.5,
    ),
}
