"""Configuration of the plasticity lab: the controlled experiment, then another reward; no heavy imports here.

Assumption beyond the paper: plasticity is measured on a changed reward, which is learned by on-policy GRPO, or in
expectation, without a regularizer and with a fresh Adam of the same learning rate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar

from bandit.config import QUICK, Count, Methods, TrainingConfig
from bandit.engine.two_tasks.config import SeedRoles
from cokl.support.assumptions import assumption
from cokl.support.options import DIFFERENT, SOME, Bound, Integers, Names, at_least, require

_CHANGE = re.compile(r"repaired|preferred|(narrowed|moved)-\d+")
_CHANGES = "narrowed-M, repaired, preferred or moved-M, with few enough actions"
Share = Annotated[float, Bound(lambda value: 0 < value < 1, "a number in (0, 1)")]


def kind_of(change: str) -> tuple[str, int]:
    """Of a change of the reward its kind, and M, the actions that it makes correct: 1 for a kind without a number.

    Raises InputError if there is no such change.
    """
    require(bool(_CHANGE.fullmatch(change)), "changes", _CHANGES, change)
    kind, _, actions = change.partition("-")
    return kind, int(actions or 1)


@dataclass(frozen=True)
class PlasticityConfig(SeedRoles, TrainingConfig):
    """Phase 1 trains every method at every coefficient; phase 2 learns a changed reward from each final policy."""

    primary_change: ClassVar[str] = "narrowed-2"
    """After which both primary measurements are taken."""

    methods: Methods = (
        "none",
        "entropy",
        "forward_kl",
        "reverse_kl",
        "jensen_shannon",
        "cokl",
        "correct_forward_kl",
        "correct_reverse_kl",
    )
    """Methods of phase 1."""
    matched_correctness: Share = 0.96
    """Correctness after phase 1 at which methods are compared, between neighbouring coefficients."""
    changes: Annotated[Names, SOME, DIFFERENT] = (
        "narrowed-2",
        "narrowed-1",
        "narrowed-4",
        "repaired",
        "preferred",
        "moved-2",
    )
    """Changes of the reward. The first is learned from every policy, the others from those nearest the match."""
    seeds: Count = 5
    """Reported seeds, from first_seed on."""
    first_seed: Annotated[int, at_least(0)] = 0
    """The first reported seed. Another one repeats the experiment with new random draws throughout."""
    selection_seeds: Annotated[int, at_least(1)] = assumption(
        3, "how much luck there is in the match and in the choice of the rival"
    )
    """Seeds 1000 to 1000 + N - 1, used only to choose the matched coefficients and the best rival."""
    new_steps: Count = 400
    """Steps of phase 2."""
    evaluated_steps: Integers = (0, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 250, 300, 350, 400)
    """Steps of phase 2 at which the policy is evaluated; 0 and new_steps among them."""
    prompts: Count = assumption(64, "more prompts per step speed up phase 2 and make every policy recover sooner")
    """Inputs per step of phase 2."""
    group_size: Annotated[int, at_least(2)] = 8
    """G, responses in a GRPO group."""

    evaluated_inputs: Count = assumption(1000, "more inputs make the evaluation of phase 2 slower and no less noisy")
    """Number of test inputs on which phase 2 is evaluated, counted from the first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = self.evaluated_steps
        ordered = list(steps) == sorted(set(steps)) and steps[:1] == (0,) and steps[-1:] == (self.new_steps,)
        require(ordered, "evaluated_steps", f"increasing steps from 0 to new_steps, {self.new_steps}", steps)
        environment = self.environment
        for change in self.changes:
            kind, actions = kind_of(change)
            correct = environment.correct_actions
            most = environment.actions - correct if kind == "moved" else correct
            require(1 <= actions <= most, "changes", _CHANGES, change)
        ambiguous = environment.correct_actions < 2 and {"repaired", "preferred"} & {*self.changes}
        require(not ambiguous, "environment.correct_actions", "at least 2 for these changes", 1)


PRESETS: dict[str, PlasticityConfig] = {
    "paper": PlasticityConfig(),
    "quick": PlasticityConfig(
        methods=("none", "entropy", "reverse_kl", "cokl", "correct_forward_kl"),
        betas=(0.03, 0.1, 0.3),
        selection_seeds=1,
        matched_correctness=0.965,
        changes=("narrowed-2",),
        new_steps=100,
        evaluated_steps=(0, 5, 10, 20, 30, 50, 75, 100),
        evaluated_inputs=500,
        **QUICK,
    ),
}
