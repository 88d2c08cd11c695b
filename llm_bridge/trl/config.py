"""The regularizer's options, beside those of TRL's `GRPOConfig`. Their names are VeRL's `+cokl.*` with a `cokl_`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from trl import GRPOConfig

from cokl import methods
from cokl.support.options import require

Prompts = Literal["buffer", "training"]
Length = Literal["token-sum", "token-mean"]


def _option(default: Any, says: str) -> Any:
    return field(default=default, metadata={"help": says})


@dataclass
class CoKLGRPOConfig(GRPOConfig):
    """TRL's options, and the regularizer's. `beta` stays TRL's KL penalty; the order of prompts has TRL's `seed`.

    Raises:
        InputError: a value that the regularizer does not take, by its option's name.
    """

    cokl_buffer: str = _option("", "The buffer's file, of answers that the starting model has given.")
    cokl_method: str = _option("cokl", "What to add to the loss: replay, cokl, forward_kl, reverse_kl, ...")
    cokl_beta: float = _option(1.0, "Its coefficient.")
    cokl_kl_prompts: int = _option(8, "Prompts of the buffer in an optimizer step, over all processes.")
    cokl_length: Length = _option("token-sum", "A response's log-likelihood: the sum over its tokens, or the mean.")
    cokl_prompts: Prompts = _option("buffer", "Regularized prompts: the buffer's, or the batch's that are in it.")
    cokl_cached_per_prompt: int = _option(0, "Cached answers that a prompt brings, drawn in each step; 0: all.")
    cokl_correct_above: float = _option(0.5, "An answer whose reward is above it counts as correct.")

    _taken = False  # without a type, so that it is no option

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.cokl_buffer), "cokl_buffer", "a file", "nothing")
        method = methods.get(str(self.cokl_method))
        require(bool(method.streams()), "cokl_method", "a regularizer (plain RL is GRPOTrainer)", method.name)
        self.cokl_method = method.name
        expected = "a number from 1e-38 to 1e38, which weights in float32 can be"
        _require_number("cokl_beta", self.cokl_beta, expected, least=1e-38, most=1e38)
        _require_number("cokl_correct_above", self.cokl_correct_above, "a number")
        for name, least in (("cokl_kl_prompts", 1), ("cokl_cached_per_prompt", 0)):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            require(whole and value >= least, name, f"a whole number of at least {least}", repr(value))
        for name, values in (("cokl_prompts", get_args(Prompts)), ("cokl_length", get_args(Length))):
            require(getattr(self, name) in values, name, " or ".join(values), repr(getattr(self, name)))

    def take(self) -> None:
        """A CoKLGRPOTrainer has these options, and regularizes."""
        self._taken = True

    def get_warmup_steps(self, num_training_steps: int) -> int:
        """Transformers', which a trainer asks for before its first step: TRL's own would train without the regularizer.

        Raises InputError unless a CoKLGRPOTrainer has taken this configuration. One that is given a schedule of its own
        does not ask.
        """
        require(self._taken, "trainer", "CoKLGRPOTrainer with a CoKLGRPOConfig", "another, that trains plain RL")
        return int(super().get_warmup_steps(num_training_steps))


def _require_number(name: str, value: Any, expected: str, least: float = -math.inf, most: float = math.inf) -> None:
    """YAML reads 1e-3 as a text."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    require(is_number and math.isfinite(value) and least <= value <= most, name, expected, repr(value))
