"""Choices in the sampled surrogates that the paper leaves open. No heavy imports: configurations read its defaults."""

from __future__ import annotations

from dataclasses import dataclass

from cokl.support.assumptions import assumption
from cokl.support.errors import InputError


@dataclass(frozen=True)
class SurrogateConfig:
    """Choices in the sampled surrogates that the paper leaves open.

    Raises InputError for an epsilon_is outside (0, 1).
    """

    epsilon_is: float = assumption(
        0.2,
        "a smaller value lowers the variance of gamma and raises its bias once the policy has left the rollout policy; "
        "without effect at the point of sampling, where every ratio is 1",
    )
    """Clipping range of the sequence-level importance ratio, epsilon_IS (Eq. 15)."""

    def __post_init__(self) -> None:
        if not 0 < self.epsilon_is < 1:
            raise InputError(f"epsilon_is: expected a number in (0, 1), got {self.epsilon_is}")
