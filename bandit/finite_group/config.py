"""Configuration of the finite-group lab; no heavy imports here.

Assumption beyond the paper: the reward enters exactly, so that a regularizer's groups are all that is sampled and the
exact objective is the limit G -> inf. With mu > 1, a minibatch and its groups serve mu optimizer steps, in the exact
limit too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from bandit.config import TrainingConfig
from cokl.support.options import DIFFERENT, SOME, Bound, Coefficients, Integers, Names
from cokl.surrogate_config import SurrogateConfig

REFERENCE_GROUPS = ("fresh", "cached")
_KNOWN = Bound(lambda kind: kind in REFERENCE_GROUPS, f"some of {', '.join(REFERENCE_GROUPS)}", each=True)
_Counts = Annotated[Integers, SOME, DIFFERENT, Bound(lambda count: count >= 1, "numbers of at least 1", each=True)]


@dataclass(frozen=True)
class FiniteGroupConfig(TrainingConfig):
    """The single-task experiment with sampled surrogates; every method is also trained on its exact objective."""

    methods: Names = ("none", "cokl", "correct_forward_kl", "reverse_kl")
    """"none", regularizers with a sampled surrogate, and these with "_floor" appended."""
    betas: Coefficients = (0.3,)
    """Coefficients of every regularizer."""
    steps: int = 600
    """RL steps; fewer than the paper's 1000, which keeps the whole lab within half an hour."""
    eval_interval: int = 50
    """Steps between evaluations; the first and the last step are always evaluated. Step 150 is the paper's 9.4 passes
    over its cache: 150 x 512 of 8000 inputs are 9.6."""
    group_sizes: _Counts = (1, 2, 4, 8, 16, 64)
    """Responses per group, G, of the rollouts and of the reference."""
    optimizer_steps: _Counts = (1, 4)
    """Optimizer steps on one minibatch and its groups, mu: 1 is on-policy, more is off-policy. Methods without
    rollouts, and reference groups that are not fresh, take the first alone."""
    reference_groups: Annotated[Names, SOME, DIFFERENT, _KNOWN] = REFERENCE_GROUPS
    """Where reference groups come from: "fresh" are drawn for each minibatch, for a conditional regularizer given that
    they hold a correct response, as the buffer's filter does; "cached" are such groups drawn once per training input,
    for methods that weigh rollouts too."""
    epsilon_is: float = SurrogateConfig.epsilon_is
    """Clipping range of the sequence-level importance ratio, epsilon_IS (Eq. 15); without effect on-policy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        SurrogateConfig(self.epsilon_is)  # which refuses what is not in (0, 1)


PRESETS: dict[str, FiniteGroupConfig] = {
    "paper": FiniteGroupConfig(),
    "quick": FiniteGroupConfig(
        methods=("none", "cokl", "correct_forward_kl"),
        betas=(0.3,),
        seeds=4,
        steps=100,
        eval_interval=50,
        batch_size=256,
        pretrain_steps=500,
        group_sizes=(2, 8),
        optimizer_steps=(1,),
        reference_groups=("fresh",),
    ),
}
