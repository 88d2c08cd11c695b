"""Configuration of the task-shift lab: Appendix E.3 in miniature. No heavy imports here.

What the paper does not say, or what only a simulator has, is declared with `assumption`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from bandit.config import EnvironmentConfig
from bandit.two_tasks.config import METHODS, TwoTaskConfig
from cokl.support.assumptions import assumption
from cokl.support.options import Coefficients, Integers, Names, require, separated
from cokl.surrogate_config import SurrogateConfig

PAPER_BETA = 1.0
"""The coefficient of CoKL, of its ablations and of the forward KLs in the paper's tables (E.3)."""


@dataclass(frozen=True)
class ShiftConfig(TwoTaskConfig):
    """Which runs to train on two task families, and how."""

    mode: Literal["both", "exact", "sampled"] = "both"
    """Expectations over the action space, sampled groups of responses, or both one after the other."""
    methods: Names = METHODS
    """What to train: names that `cokl.methods.get` knows; "none" is GRPO w/o KL."""
    betas: Coefficients = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
    """Coefficients of every regularizer; each method's best one is chosen on the selection seeds."""
    seeds: int = 5
    """Reported seeds, from first_seed on; each draws its own tasks, inputs, initialisation, buffer and minibatches."""
    first_seed: int = 0
    """The first reported seed: other seeds repeat the experiment with everything random drawn anew."""
    selection_seeds: int = assumption(3, "the luck in the choice of each method's coefficient")
    """Further seeds, 1000 to 1000 + N - 1, on which coefficients are chosen and nothing is reported."""
    steps: int = 600
    """Optimizer steps on the new task."""
    eval_interval: int = 60
    """Steps between evaluations; the first and the last step are always evaluated."""
    batch_size: int = 64
    """New-task prompts per step."""
    group_size: int = 8
    """G, fresh rollouts per prompt of either task; in expectations, the size of GRPO's group."""
    reference_group_size: int = 8
    """G_ref, cached reference responses per prompt of the buffer."""
    pass_draws: int = 8
    """k of pass@k, the chance that one of k independent responses to a prior prompt is correct."""
    buffer_size: int = 512
    """Prior-task prompts in the buffer, before the filtered methods leave out those without a correct response."""
    kl_groups: int = 16
    """Response groups per update: 16 prompts for a method that weights one stream of responses, 8 for one with two."""
    kl_sweep: Integers = (8, 16, 32, 64)
    """Prompts per update in the KL-batch sweep."""
    kl_sweep_methods: Names = ("cokl", "correct_forward_kl")
    """Methods in the KL-batch sweep, which runs on the reported seeds."""
    kl_sweep_beta: float = 1.0
    """The coefficient in the KL-batch sweep."""
    optimizer_steps: int = assumption(
        1, "1 keeps every ratio at 1; more steps per rollout let the clipping ranges bind and gamma differ from delta"
    )
    """mu, optimizer steps on one batch of rollouts; exact mode keeps its minibatch as long. E.3's is 1."""
    epsilon_is: float = assumption(SurrogateConfig.epsilon_is, "without effect at one optimizer step per rollout")
    """Clipping range of the sequence-level importance ratio, epsilon_IS (Eq. 15)."""
    cluster_overlap: float = assumption(0.0, "how much the two tasks interfere: 1 gives them the same inputs")
    """Correlation of each new cluster's centre with its prior counterpart's, in [0, 1]."""
    correct_overlap: float = assumption(
        0.0, "where clusters overlap, learning the new task then practises the prior one"
    )
    """Share of each new cluster's correct actions that are correct for its prior counterpart too, in [0, 1]."""
    hidden: tuple[int, ...] = assumption((128, 128), "wider networks interfere less")
    """Widths of the MLP's hidden layers, which end in Tanh."""
    pretrain_steps: int = assumption(400, "how closely the first policy matches the oracles of both tasks")
    """Soft-label cross-entropy steps on both tasks."""
    pretrain_batch_size: int = assumption(256, "noise of pretraining only")
    """Inputs of both tasks together per pretraining step."""
    prior_steps: int = assumption(200, "more steps make the reference more correct and less diverse")
    """Exact-mode RL steps on the prior task, without a regularizer, that make the base model."""
    learning_rate: float = assumption(1e-3, "with the number of steps, how far training goes and how much is forgotten")
    """Adam's learning rate; there is no weight decay."""
    new_learning_rate: float | None = assumption(None, "how much is forgotten, at one reference")
    """Adam's learning rate on the new task, if it is another one than before."""
    max_gradient_norm: float = assumption(1.0, "bounds the first steps; Adam's scale does not depend on it later")
    """Each run's gradient is clipped to this norm."""
    evaluation_temperature: float = assumption(
        1.0,
        "a lower one scores the policy's modes, as the paper's 0.7 does, so that drift which keeps them is not seen",
    )
    """Temperature at which prior and new correctness are scored; drifts are always the policy's own, at 1."""
    adam_betas: tuple[float, float] = (0.9, 0.95)
    """Decay rates of Adam's moments."""
    adam_epsilon: float = assumption(1e-8, "matters only where gradients vanish, at saturated policies")
    """The constant in Adam's denominator."""
    init_scale: float = assumption(1.0, "how far pretraining gets in its steps")
    """Initial weights and biases are uniform in ±init_scale / sqrt(fan_in)."""
    dtype: Literal["float32", "float64"] = "float32"
    """Arithmetic of training and evaluation."""
    regularizer_options: Annotated[tuple[str, ...], separated(str, "NAME.FIELD=VALUE")] = ()
    """Options of single regularizers, such as correct_reverse_kl.form=restricted."""
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
        """Raises InputError for a value of the wrong type or out of range."""
        super().__post_init__()
        require(self.kl_sweep_beta > 0, "kl_sweep_beta", "a finite coefficient > 0", self.kl_sweep_beta)
        self.require_counts(["optimizer_steps"])
        SurrogateConfig(self.epsilon_is)  # which refuses what is not in (0, 1)
        require(all(size >= 1 for size in self.kl_sweep), "kl_sweep", "sizes of at least 1", self.kl_sweep)
        for name in ("cluster_overlap", "correct_overlap"):
            require(0 <= getattr(self, name) <= 1, name, "a number in [0, 1]", getattr(self, name))
        self.require_positive(["evaluation_temperature"])
        enough = self.environment.train_inputs
        require(self.buffer_size <= enough, "buffer_size", f"at most the {enough} training inputs", self.buffer_size)
        shared = self.environment.shared_environment
        require(not shared, "environment.shared_environment", "False: each seed draws its own two tasks", shared)
        sharable = self.environment.actions - self.environment.correct_actions
        own = self.environment.correct_actions - self.shared_correct_actions
        require(own <= sharable, "correct_overlap", f"at most {sharable} correct actions of the new task's own", own)

    @property
    def shared_correct_actions(self) -> int:
        """How many of a cluster's correct actions are correct for its counterpart too."""
        return round(self.correct_overlap * self.environment.correct_actions)


PRESETS: dict[str, ShiftConfig] = {
    "paper": ShiftConfig(),
    "quick": ShiftConfig(betas=(0.03, 0.3, 3.0), seeds=2, selection_seeds=1, steps=300, eval_interval=60),
}
