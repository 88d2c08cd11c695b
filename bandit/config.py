"""The single task and how a policy is trained on it (Appendix E.1). Defaults are the paper's; no heavy imports here.

What the paper does not say is declared with `assumption`; ASSUMPTIONS.md lists these fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from cokl.names import canonical
from cokl.support.assumptions import assumption
from cokl.support.options import (
    DIFFERENT,
    SOME,
    Bound,
    Coefficients,
    Names,
    Settings,
    Stored,
    above,
    at_least,
    at_most,
    require,
    require_types,
)

MOST_SEEDS = 100_000
LARGEST = 10**9
"""Beyond these a number is a slip of the keyboard, that would end in an overflow or fill the memory."""
Count = Annotated[int, at_least(1), at_most(LARGEST)]
Positive = Annotated[float, above(0, "a finite number")]
Methods = Annotated[Names, Stored(canonical), SOME, DIFFERENT]
Betas = Annotated[Coefficients, Bound(lambda beta: beta > 0, "finite coefficients > 0", each=True), DIFFERENT]
Widths = Annotated[
    tuple[int, ...],
    Bound(lambda widths: all(width <= LARGEST for width in widths), f"widths of at most {LARGEST}"),
    Bound(lambda widths: all(width >= 1 for width in widths), "widths of at least 1"),
]
DecayRates = Annotated[
    tuple[float, float], Bound(lambda rates: all(0 <= rate < 1 for rate in rates), "two numbers in [0, 1)")
]


@dataclass(frozen=True)
class EnvironmentConfig:
    """The contextual bandit with several correct actions per context."""

    clusters: Count = 48
    """Latent problem clusters."""
    input_dim: Count = 64
    """Dimension of an input x."""
    noise: Annotated[float, above(0)] = 1.4
    """Standard deviation of each input coordinate around its cluster's centre."""
    actions: Annotated[int, at_least(2), at_most(LARGEST)] = 200
    """Candidate actions."""
    correct_actions: int = 12
    """Correct actions per cluster."""
    correct_mass: Annotated[float, Bound(lambda mass: 0 < mass < 1, "a number in (0, 1)")] = 0.10
    """The oracle's total probability on the correct actions."""
    concentration: Annotated[float, above(0)] = 50.0
    """Dirichlet concentration of the oracle's correctness-conditioned distribution around its Zipf prior."""
    zipf_exponents: tuple[float, float] = (1.0, 2.4)
    """First and last Zipf exponent, linearly spaced over the clusters."""
    train_inputs: Count = 8000
    """Training inputs."""
    test_inputs: Count = 4000
    """Test inputs, on which every metric is averaged."""
    center_scale: Annotated[float, above(0)] = assumption(
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
        in_range = 1 <= self.correct_actions < self.actions
        require(in_range, "environment.correct_actions", f"1 to {self.actions - 1}", self.correct_actions)


@dataclass(frozen=True)
class TrainingConfig(Settings):
    """What every experiment on the single task sets: which runs to train, and how."""

    methods: Methods = ("none", "entropy", "forward_kl", "reverse_kl", "jensen_shannon", "cokl")
    """What to sweep: "none" (unregularized RL), file names in cokl/regularizers/, or what tables call them: replay."""
    betas: Betas = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3)
    """Coefficients of every regularizer."""
    seeds: Annotated[int, at_least(1), at_most(MOST_SEEDS)] = 5
    """Random seeds, 0 to N - 1; each draws its own environment, inputs, initialisation and minibatches."""
    steps: Count = 1000
    """RL steps."""
    eval_interval: Count = 100
    """Steps between evaluations; the first and the last step are always evaluated."""
    batch_size: Count = 512
    """Inputs per step."""
    learning_rate: Positive = 1.2e-3
    """Adam's learning rate."""
    max_gradient_norm: Positive = 1.0
    """Each run's gradient is clipped to this norm."""
    hidden: Widths = (128, 128)
    """Widths of the MLP's hidden layers, which end in Tanh."""
    pretrain_steps: Count = 1000
    """Soft-label cross-entropy steps that make the reference."""
    dtype: Literal["float32", "float64"] = "float32"
    """Arithmetic of training and evaluation."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto takes CUDA where there is one."""
    coverage_draws: Count = assumption(64, "more draws raise every method's coverage and compress the differences")
    """Draws k in coverage@k, the expected share of the correct actions that k draws hit; under pi and under pi+."""
    pretrain_learning_rate: Positive = assumption(
        1.2e-3, "how closely the reference matches the oracle, hence the reference's own coverage"
    )
    """Learning rate of pretraining, which shares optimizer, batch size and clipping with the RL phase."""
    minibatch: Literal["with_replacement", "epochs"] = assumption("with_replacement", "noise of the minibatches only")
    """Whether minibatches are independent draws or walk through shuffled epochs; all methods of a seed share them."""
    init_scale: Positive = assumption(1.0, "how far pretraining gets in its number of steps")
    """Initial weights and biases are uniform in ±init_scale / sqrt(fan_in); PyTorch's default is 1."""
    adam_betas: DecayRates = assumption((0.9, 0.999), "speed and smoothness, the same for every method")
    """Decay rates of Adam's moments."""
    adam_epsilon: Positive = assumption(1e-8, "matters only where gradients vanish, at saturated policies")
    """The constant in Adam's denominator."""
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        needs_beta = set(self.methods) != {"none"}
        require(len(self.betas) > 0 or not needs_beta, "betas", "at least one value", "an empty list")


QUICK: dict[str, Any] = {
    "seeds": 4,
    "steps": 500,
    "batch_size": 128,
    "learning_rate": 3e-3,
    "pretrain_steps": 500,
    "pretrain_learning_rate": 3e-3,
    "hidden": (64, 64),
    "environment": EnvironmentConfig(clusters=24, train_inputs=4000, test_inputs=1000),
}
"""What the quick presets on the single task share: a smaller world, trained as far as the paper's, in seconds."""


_C = TypeVar("_C", bound=Any)


def changed(config: _C, changes: Mapping[str, Any]) -> _C:
    """The configuration with other values of fields of its own or of its environment's."""
    own = {name: value for name, value in changes.items() if name in vars(config)}
    environment = {name: value for name, value in changes.items() if name not in own}
    if environment:
        own["environment"] = dataclasses.replace(config.environment, **environment)
    changed_config: _C = dataclasses.replace(config, **own)
    return changed_config
