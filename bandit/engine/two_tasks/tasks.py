"""What the runs of a seed share, and the random streams that it is drawn from.

Axes: N or B prompts, P parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from torch import Tensor

from bandit.engine.sampled import Responses
from cokl.methods import Method
from cokl.support.errors import InputError


class ShiftStream(IntEnum):
    """Independent random streams of a seed, apart from those of `bandit.engine.environment.RandomStream`.

    What each is for is said in `bandit.engine.two_tasks` and in the labs' own docstrings.
    """

    OVERLAP = 100
    INITIALISATION = 101
    PRETRAINING_BATCHES = 102
    PRIOR_BATCHES = 103
    NEW_BATCHES = 104
    BUFFER = 105
    REFERENCE_RESPONSES = 106
    KL_BATCHES = 107
    NEW_ROLLOUTS = 108
    KL_ROLLOUTS = 109
    REFERENCE_VERDICTS = 110
    KL_VERDICTS = 111


@dataclass(frozen=True)
class Cache:
    """Prior-task prompts, which know the base model on them, with its cached responses, (1, N, G_ref).

    prompts: a lab's own, with `inputs` (N, D), indexed like a tensor. advice: what helps where no
    response is correct.
    """

    prompts: Any
    responses: Responses
    advice: str

    def used_by(self, method: Method) -> Cache:
        """Without the prompts that the method's filter leaves out (E.3). Raises InputError if no prompt remains."""
        if not method.filtered:
            return self
        kept = self.responses.rewards[0].any(-1)
        if not kept.any():
            raise InputError(
                f"{method.name}: no prompt of the buffer has a correct reference response; make the reference more "
                f"correct with {self.advice}"
            )
        return Cache(self.prompts[kept], self.responses[kept], self.advice)


@dataclass(frozen=True)
class TwoTasks:
    """What the runs of one seed share: the base model's parameters (P,), either task's prompts, and the buffer."""

    seed: int
    parameters: Tensor
    new_train: Any
    prior_test: Any
    new_test: Any
    buffer: Cache


@dataclass(frozen=True)
class Minibatch:
    """B prompts of one task, uniform numbers (B, G) or (B, G, T) for rollouts, and the buffer's responses to them.

    cached: the base model's responses, (1, B, G_ref), to prompts of the buffer; None on the task that RL is on.
    verdicts: uniform numbers (B, G) for the verdicts on rollouts, in a lab whose verifier errs on the buffer's prompts.
    """

    prompts: Any
    uniforms: Tensor
    cached: Responses | None = None
    verdicts: Tensor | None = None
