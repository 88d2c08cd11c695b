"""What the configurations of both two-task labs share: Appendix E.3 in miniature. No heavy imports here.

What the paper does not say, or what only a simulator has, is declared with `assumption`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from bandit.config import Betas, Count, DecayRates, Methods, Positive, Widths
from cokl.support.assumptions import assumption
from cokl.support.options import SOME, Bound, Settings, at_least, require

Mode = Literal["exact", "sampled"]

# Seeds that choose coefficients are numbered from here, apart from the reported ones however many those are.
FIRST_SELECTION_SEED = 1000

METHODS = (
    "none",
    "reverse_kl",
    "forward_kl",
    "correct_reverse_kl",
    "correct_forward_kl",
    "cokl",
    "cokl_without_term1",
    "cokl_floor",
    "entropy",
    "jensen_shannon",
)


class SeedRoles(Settings):
    """Which seeds of a configuration are reported and which choose; its fields are declared by the configuration."""

    seeds: int
    first_seed: int
    selection_seeds: int

    @property
    def roles(self) -> dict[int, str]:
        """Every seed, and whether it is for "report" or for "selection"."""
        report = range(self.first_seed, self.first_seed + self.seeds)
        selection = range(FIRST_SELECTION_SEED, FIRST_SELECTION_SEED + self.selection_seeds)
        return dict.fromkeys(report, "report") | dict.fromkeys(selection, "selection")

    def __post_init__(self) -> None:
        """Raises InputError as the bases do, and for a reported seed that is a selection seed."""
        super().__post_init__()
        last = self.first_seed + self.seeds
        require(last <= FIRST_SELECTION_SEED, "seeds", f"at most {FIRST_SELECTION_SEED} with first_seed", last)


@dataclass(frozen=True)
class BaseModelConfig(Settings):
    """How a base model is made, by pretraining on two tasks and RL on the prior one, and what all training shares."""

    hidden: Widths = assumption((128, 128), "wider networks interfere less")
    """Widths of the MLP's hidden layers, which end in Tanh."""
    pretrain_steps: Count = assumption(400, "how closely the first policy matches the oracles of both tasks")
    """Soft-label cross-entropy steps on both tasks."""
    pretrain_batch_size: Count = assumption(256, "noise of pretraining only")
    """Inputs of both tasks together per pretraining step."""
    prior_steps: Annotated[int, at_least(0)] = assumption(
        200, "more steps make the reference more correct and less diverse"
    )
    """Exact-mode RL steps on the prior task, without a regularizer, that make the base model."""
    learning_rate: Positive = assumption(
        1e-3, "how far training goes and how much is forgotten, together with the number of steps"
    )
    """Adam's learning rate; there is no weight decay."""
    max_gradient_norm: Positive = assumption(1.0, "bounds the first steps; later steps of Adam do not depend on it")
    """Each run's gradient is clipped to this norm."""
    adam_betas: DecayRates = (0.9, 0.95)
    """Decay rates of Adam's moments."""
    adam_epsilon: Positive = assumption(1e-8, "matters only where gradients vanish, at saturated policies")
    """The constant in Adam's denominator."""
    init_scale: Positive = assumption(1.0, "how far pretraining gets in its number of steps")
    """Initial weights and biases are uniform in ±init_scale / sqrt(fan_in)."""


@dataclass(frozen=True)
class TwoTaskConfig(SeedRoles, BaseModelConfig):
    """The fields that both labs have, with the task shift's defaults."""

    mode: Literal["both", "exact", "sampled"] = "both"
    """Expectations over all responses, sampled groups of them, or both one after the other."""
    methods: Methods = METHODS
    """What to train: names that `cokl.methods.get` knows; "none" is GRPO w/o KL."""
    betas: Annotated[Betas, SOME] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
    """Coefficients of every regularizer; each method's best one is chosen on the selection seeds."""
    seeds: Count = 5
    """Reported seeds, from first_seed on; each draws its own tasks, inputs, initialisation, buffer and minibatches."""
    first_seed: Annotated[int, at_least(0)] = 0
    """The first reported seed. Another one repeats the experiment with new random draws throughout."""
    selection_seeds: Annotated[int, at_least(0)] = assumption(
        3, "how much luck there is in the choice of each method's coefficient"
    )
    """Further seeds, 1000 to 1000 + N - 1, used only to choose coefficients; nothing is reported from them."""
    steps: Count = 600
    """Optimizer steps on the new task."""
    eval_interval: Count = 60
    """Steps between evaluations; the first and the last step are always evaluated."""
    batch_size: Count = 64
    """New-task prompts per step."""
    group_size: Annotated[int, Bound(lambda size: size >= 2, "at least 2, since GRPO compares responses")] = 8
    """G, fresh rollouts per prompt of either task; in expectations, the size of GRPO's group."""
    reference_group_size: Count = 8
    """G_ref, cached reference responses per prompt of the buffer."""
    pass_draws: Count = 8
    """k of pass@k, the chance that one of k independent responses to a prompt is correct."""
    buffer_size: Count = 512
    """Prior-task prompts in the buffer, before the filtered methods leave out those without a correct response."""
    kl_groups: Count = 16
    """Response groups per update: 16 prompts for a method that weights one stream of responses, 8 for one with two."""
    new_learning_rate: Annotated[float | None, Bound(lambda rate: rate is None or rate > 0, "a finite number > 0")] = (
        assumption(None, "how much is forgotten, with the reference unchanged")
    )
    """Adam's learning rate on the new task; None takes `learning_rate`."""

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes to train in."""
        return ("exact", "sampled") if self.mode == "both" else (self.mode,)
