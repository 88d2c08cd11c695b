"""What the configurations of both two-task labs share. No heavy imports here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal

from bandit.config import LARGEST
from cokl.support.options import Coefficients, Names, require, require_types

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
    "cokl_without_term2",
    "cokl_floor",
    "entropy",
    "jensen_shannon",
)


class SeedRoles:
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

    def require_roles_apart(self) -> None:
        """Raises InputError for a reported seed that is a selection seed."""
        last = self.first_seed + self.seeds
        require(last <= FIRST_SELECTION_SEED, "seeds", f"at most {FIRST_SELECTION_SEED} with first_seed", last)


class TwoTaskConfig(SeedRoles):
    """What both labs require of the fields that they share. Each lab's is a frozen dataclass with its own defaults.

    Declared here are the fields that are read here, and defaults for a lab without such a field.
    """

    mode: Literal["both", "exact", "sampled"]
    methods: Names
    betas: Coefficients
    group_size: int
    hidden: tuple[int, ...]
    new_learning_rate: float | None
    adam_betas: tuple[float, float]
    optimizer_steps: int = 1
    dtype: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        """Raises InputError for a value of the wrong type or out of range."""
        require_types(self, "")
        for name in ("methods", "betas"):
            values = getattr(self, name)
            require(len(values) > 0, name, "at least one value", "an empty list")
            require(len(set(values)) == len(values), name, "different values", ",".join(map(str, values)))
        for beta in self.betas:
            require(beta > 0, "betas", "finite coefficients > 0", beta)
        self.require_counts(_COUNTS)
        for name in ("selection_seeds", "prior_steps", "first_seed"):
            require(getattr(self, name) >= 0, name, "at least 0", getattr(self, name))
        self.require_roles_apart()
        require(self.group_size >= 2, "group_size", "at least 2, for GRPO compares responses", self.group_size)
        self.require_positive(("learning_rate", "max_gradient_norm", "init_scale", "adam_epsilon"))
        rate = self.new_learning_rate
        require(rate is None or rate > 0, "new_learning_rate", "a finite number > 0", rate)
        require(all(0 <= b < 1 for b in self.adam_betas), "adam_betas", "two numbers in [0, 1)", self.adam_betas)
        require(all(width >= 1 for width in self.hidden), "hidden", "widths of at least 1", self.hidden)

    def require_counts(self, names: Iterable[str]) -> None:
        """Raises InputError unless the fields count something."""
        for name in names:
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
            require(getattr(self, name) <= LARGEST, name, f"at most {LARGEST}", getattr(self, name))

    def require_positive(self, names: Iterable[str]) -> None:
        """Raises InputError unless the fields are above zero."""
        for name in names:
            require(getattr(self, name) > 0, name, "a finite number > 0", getattr(self, name))

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes to train in."""
        return ("exact", "sampled") if self.mode == "both" else (self.mode,)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, nested as the dataclasses are."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]


_COUNTS = (
    "seeds",
    "steps",
    "eval_interval",
    "batch_size",
    "reference_group_size",
    "pass_draws",
    "buffer_size",
    "kl_groups",
    "pretrain_steps",
    "pretrain_batch_size",
)
