"""Configuration of the plasticity lab with answers of many tokens: the sequence lab's prior task, then another reward.

No heavy imports here. Phase 1 is sampled, as an LLM trainer does it. The base model of the sequence lab is the
reference; it has been pretrained on that lab's new task as well, which nothing is measured on here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from bandit.config import Betas, Count, Methods, Positive
from bandit.plasticity.config import Phase1, Share, Sizes, TwoPhases
from bandit.sequences.config import SequenceWorld
from cokl.support.assumptions import assumption
from cokl.support.options import SOME, Integers, at_least, require


@dataclass(frozen=True)
class SequencePlasticityConfig(TwoPhases, SequenceWorld):
    """Phase 1 trains every method at every coefficient; phase 2 learns a changed reward from each final policy."""

    title, primary_change, answers = "Plasticity with answers of many tokens", "narrowed-1", "answers"
    picture = "plasticity_sequences_curves"
    beside = ("distinct_at_64", "conditional_entropy")

    methods: Methods = ("none", "entropy", "forward_kl", "reverse_kl", "cokl", "correct_forward_kl")
    """What phase 1 adds to GRPO, on the same prompts: names that `cokl.methods.get` knows; "none" for nothing."""
    betas: Annotated[Betas, SOME] = (0.003, 0.01, 0.02, 0.03)
    """Coefficients of every regularizer."""
    cached: Sizes = (8,)
    """G_ref, cached reference responses per prompt, of methods that weight them; nested in one another."""
    matched_correctness: Share = 0.9
    """Correctness after phase 1 at which methods are compared, between neighbouring coefficients."""
    changes: Methods = ("narrowed-1", "moved-4")
    """Changes of the reward. narrowed-M: each state forbids M more symbols; moved-M: the first state allows M of the
    symbols that it forbade, and no other. The first is learned from every policy, the others from those nearest the
    match."""
    length: Count = assumption(6, "more tokens make narrowed answers rarer: narrowed-1 keeps (3/4)^6 of uniform ones")
    """T, tokens of a response."""
    steps: Count = assumption(120, "more steps make the policy more correct and less diverse")
    """Steps of phase 1."""
    new_steps: Count = 80
    """Steps of phase 2, of each change."""
    evaluated_steps: Integers = (0, 5, 10, 15, 20, 30, 40, 50, 60, 80)
    """Steps of phase 2 at which the policy is evaluated; 0 and new_steps among them."""
    prompts: Count = assumption(16, "more prompts per step speed up phase 2 and make every policy recover sooner")
    """Prompts per step of both phases and of the RL that makes the base model."""
    prior_steps: Annotated[int, at_least(0)] = assumption(
        2, "more steps make the reference more correct and less diverse"
    )
    """Exact-mode RL steps on the prior task, without a regularizer, that make the base model."""

    learning_rate: Positive = assumption(
        2e-3, "how far either phase goes in its steps; with the sequence lab's 1e-3 twice as many are needed"
    )
    """Adam's learning rate."""

    # Without an annotation, for nothing else is possible here.
    device = "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        for change in self.changes:
            known = re.fullmatch(r"(?:narrowed|moved)-(\d+)", change)
            most = self.forbidden if change.startswith("moved") else self.symbols - 1 - self.forbidden
            fits = known is not None and 1 <= int(known[1]) <= most
            require(fits, "changes", "narrowed-M or moved-M, with few enough symbols", change)

    @property
    def batch_size(self) -> int:
        """Prompts per step of the RL that makes the base model."""
        return self.prompts

    @property
    def phases(self) -> tuple[Phase1, ...]:
        """Sampled alone."""
        return (Phase1("sampled", self.methods, self.betas, self.cached, self.matched_correctness),)

    @property
    def reached(self) -> tuple[str, ...]:
        """Correctness, distinct correct answers of 64, entropy of the correct answers, and the conditional KL."""
        return "p_correct", *self.beside, "conditional_kl"


PRESETS: dict[str, SequencePlasticityConfig] = {
    "paper": SequencePlasticityConfig(),
    "quick": SequencePlasticityConfig(
        methods=("none", "reverse_kl", "cokl", "correct_forward_kl"),
        betas=(0.01, 0.03),
        matched_correctness=0.8,
        seeds=4,
        selection_seeds=1,
        steps=60,
        pretrain_steps=500,
        new_steps=40,
        evaluated_steps=(0, 5, 10, 20, 30, 40),
        test_inputs=60,
    ),
}
