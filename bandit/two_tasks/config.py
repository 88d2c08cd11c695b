"""What the configurations of both two-task labs share. No heavy imports here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from bandit.config import LARGEST
from cokl.support.options import Coefficients, Names, require, require_types, separated

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


def seed_roles(first: int, seeds: int, selection_seeds: int) -> dict[int, str]:
    """Every seed, and whether it is for "report" or for "selection". Raises InputError if the two would meet."""
    last = first + seeds
    require(last <= FIRST_SELECTION_SEED, "seeds", f"at most {FIRST_SELECTION_SEED} with first_seed", last)
    selection = range(FIRST_SELECTION_SEED, FIRST_SELECTION_SEED + selection_seeds)
    return dict.fromkeys(range(first, last), "report") | dict.fromkeys(selection, "selection")


class TwoTaskConfig:
    """The fields that both labs have, and their checks. Each lab is a frozen dataclass with defaults of its own."""

    mode: Literal["both", "exact", "sampled"]
    methods: Names
    betas: Coefficients
    seeds: int
    first_seed: int
    selection_seeds: int
    steps: int
    eval_interval: int
    batch_size: int
    group_size: int
    reference_group_size: int
    pass_draws: int
    buffer_size: int
    kl_groups: int
    hidden: tuple[int, ...]
    pretrain_steps: int
    pretrain_batch_size: int
    prior_steps: int
    learning_rate: float
    new_learning_rate: float | None
    max_gradient_norm: float
    adam_betas: tuple[float, float]
    adam_epsilon: float
    init_scale: float
    regularizer_options: Annotated[tuple[str, ...], separated(str, "NAME.FIELD=VALUE")]
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
        seed_roles(self.first_seed, self.seeds, self.selection_seeds)
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

    @property
    def roles(self) -> dict[int, str]:
        """Every seed, and whether it is for "report" or for "selection"."""
        return seed_roles(self.first_seed, self.seeds, self.selection_seeds)

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
