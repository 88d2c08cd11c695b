"""The single task and how a policy is trained on it (Appendix E.1). Defaults are the paper's; no heavy imports here.

What the paper does not say is declared with `assumption`; ASSUMPTIONS.md lists these fields.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from cokl.support.assumptions import assumption
from cokl.support.options import Coefficients, Names, require, require_types, separated

MOST_SEEDS = 100_000
LARGEST = 10**9
"""Beyond these a number is a slip of the keyboard, that would end in an overflow or fill the memory."""


@dataclass(frozen=True)
class EnvironmentConfig:
    """The contextual bandit with several correct actions per context."""

    clusters: int = 48
    """Latent problem clusters."""
    input_dim: int = 64
    """Dimension of an input x."""
    noise: float = 1.4
    """Standard deviation of each input coordinate around its cluster's centre."""
    actions: int = 200
    """Candidate actions."""
    correct_actions: int = 12
    """Correct actions per cluster."""
    correct_mass: float = 0.10
    """The oracle's total probability on the correct actions."""
    concentration: float = 50.0
    """Dirichlet concentration of the oracle's correctness-conditioned distribution around its Zipf prior."""
    zipf_exponents: tuple[float, float] = (1.0, 2.4)
    """First and last Zipf exponent, linearly spaced over the clusters."""
    train_inputs: int = 8000
    """Training inputs."""
    test_inputs: int = 4000
    """Test inputs, on which every metric is averaged."""
    center_scale: float = assumption(
        1.0,
        "a smaller scale makes clusters overlap, so that the reference and every trained policy blur across clusters",
    )
    """Standard deviation of each coordinate of a cluster centre, drawn from a normal distribution."""
    balanced_clusters: bool = assumption(
        False, "removes the sampling noise of the cluster frequencies from the averages"
    )
    """Whether every cluster gets the same number of inputs; otherwise each input draws its cluster uniformly."""
    shared_environment: bool = assumption(
        False, "the spread over seeds then shows inputs, initialisation and minibatches only"
    )
    """Whether all seeds share the centres, correct sets and oracle of seed 0."""

    def __post_init__(self) -> None:
        """Raises InputError for a value of the wrong type or out of range."""
        require_types(self, "environment.")
        for name in ("clusters", "input_dim", "train_inputs", "test_inputs"):
            require(getattr(self, name) >= 1, f"environment.{name}", "at least 1", getattr(self, name))
        for name in ("clusters", "input_dim", "train_inputs", "test_inputs", "actions"):
            require(getattr(self, name) <= LARGEST, f"environment.{name}", f"at most {LARGEST}", getattr(self, name))
        require(self.actions >= 2, "environment.actions", "at least 2", self.actions)
        in_range = 1 <= self.correct_actions < self.actions
        require(in_range, "environment.correct_actions", f"1 to {self.actions - 1}", self.correct_actions)
        require(0 < self.correct_mass < 1, "environment.correct_mass", "a number in (0, 1)", self.correct_mass)
        for name in ("noise", "concentration", "center_scale"):
            require(getattr(self, name) > 0, f"environment.{name}", "a number > 0", getattr(self, name))


@dataclass(frozen=True)
class TrainingConfig:
    """What every experiment on the single task sets: which runs to train, and how."""

    methods: Names = ("none", "entropy", "forward_kl", "reverse_kl", "jensen_shannon", "cokl")
    """What to sweep: "none" (unregularized RL) and the regularizers, which are the file names in cokl/regularizers/."""
    betas: Coefficients = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3)
    """Coefficients of every regularizer."""
    seeds: int = 5
    """Random seeds, 0 to N - 1; each draws its own environment, inputs, initialisation and minibatches."""
    steps: int = 1000
    """RL steps."""
    eval_interval: int = 100
    """Steps between evaluations; the first and the last step are always evaluated."""
    batch_size: int = 512
    """Inputs per step."""
    learning_rate: float = 1.2e-3
    """Adam's learning rate."""
    max_gradient_norm: float = 1.0
    """Each run's gradient is clipped to this norm."""
    hidden: tuple[int, ...] = (128, 128)
    """Widths of the MLP's hidden layers, which end in Tanh."""
    pretrain_steps: int = 1000
    """Soft-label cross-entropy steps that make the reference."""
    dtype: Literal["float32", "float64"] = "float32"
    """Arithmetic of training and evaluation."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto takes CUDA where there is one."""
    regularizer_options: Annotated[tuple[str, ...], separated(str, "NAME.FIELD=VALUE")] = ()
    """Options of single regularizers, such as correct_reverse_kl.form=restricted."""
    coverage_draws: int = assumption(64, "more draws raise every method's coverage and compress the differences")
    """Draws k in coverage@k, the expected share of the correct actions that k draws hit; under pi and under pi+."""
    pretrain_learning_rate: float = assumption(
        1.2e-3, "how closely the reference matches the oracle, hence the reference's own coverage"
    )
    """Learning rate of pretraining, which shares optimizer, batch size and clipping with the RL phase."""
    minibatch: Literal["with_replacement", "epochs"] = assumption("with_replacement", "noise of the minibatches only")
    """Whether minibatches are independent draws or walk through shuffled epochs; all methods of a seed share them."""
    init_scale: float = assumption(1.0, "how far pretraining gets in its steps")
    """Initial weights and biases are uniform in ±init_scale / sqrt(fan_in); PyTorch's default is 1."""
    adam_betas: tuple[float, float] = assumption((0.9, 0.999), "speed and smoothness of every run alike")
    """Decay rates of Adam's moments."""
    adam_epsilon: float = assumption(1e-8, "matters only where gradients vanish, at saturated policies")
    """The constant in Adam's denominator."""
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)

    def __post_init__(self) -> None:
        """Raises InputError for a value of the wrong type or out of range."""
        require_types(self, "")
        require(len(self.methods) > 0, "methods", "at least one name", "an empty list")
        require(len(set(self.methods)) == len(self.methods), "methods", "different names", ",".join(self.methods))
        needs_beta = set(self.methods) != {"none"}
        require(len(self.betas) > 0 or not needs_beta, "betas", "at least one coefficient", "an empty list")
        for beta in self.betas:
            require(beta > 0, "betas", "finite coefficients > 0", beta)
        require(len(set(self.betas)) == len(self.betas), "betas", "different coefficients", self.betas)
        for name in ("seeds", "steps", "eval_interval", "batch_size", "pretrain_steps", "coverage_draws"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        require(self.seeds <= MOST_SEEDS, "seeds", f"at most {MOST_SEEDS}", self.seeds)
        for name in ("steps", "eval_interval", "batch_size", "pretrain_steps", "coverage_draws"):
            require(getattr(self, name) <= LARGEST, name, f"at most {LARGEST}", getattr(self, name))
        require(all(width <= LARGEST for width in self.hidden), "hidden", f"widths of at most {LARGEST}", self.hidden)
        for name in ("learning_rate", "max_gradient_norm", "pretrain_learning_rate", "init_scale", "adam_epsilon"):
            require(getattr(self, name) > 0, name, "a finite number > 0", getattr(self, name))
        require(all(0 <= b < 1 for b in self.adam_betas), "adam_betas", "two numbers in [0, 1)", self.adam_betas)
        require(all(width >= 1 for width in self.hidden), "hidden", "widths of at least 1", self.hidden)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, nested as the dataclasses are."""
        return dataclasses.asdict(self)
