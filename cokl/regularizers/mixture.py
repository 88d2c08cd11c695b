"""A weighted sum of regularizers, called "0.3cokl+0.7correct_forward_kl" and the like wherever a method is named.

That one is CoKL with 0.3 of its term 2: replay is CoKL - log Z (below Eq. 9), so a CoKL + (1 - a) replay is
KL(pi_ref+ || pi+) - (1 - a) log Z. It is beyond the paper, which has a = 0 and a = 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import get_args

import torch
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig, SurrogateWeights
from cokl.policy import Policy
from cokl.regularizers.base import Regularizer, Stream
from cokl.regularizers.log_linear import LogLinear

_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)([A-Za-z]\w*)")


class Mixture(Regularizer):
    """sum_i weight_i D_i per context, in nats, with weights > 0. Its range is that of the sum."""

    def __init__(self, parts: Iterable[tuple[float, Regularizer]]) -> None:
        self.parts = tuple(parts)
        regularizers = [regularizer for _, regularizer in self.parts]
        self.name = "+".join(f"{weight:g}{regularizer.name}" for weight, regularizer in self.parts)
        self.label = " + ".join(f"{weight:g} {regularizer.label}" for weight, regularizer in self.parts)
        self.conditional = any(regularizer.conditional for regularizer in regularizers)
        self.compares_with_reference = any(regularizer.compares_with_reference for regularizer in regularizers)
        if all(regularizer.streams for regularizer in regularizers):
            needed = {stream for regularizer in regularizers for stream in regularizer.streams}
            self.streams = tuple(stream for stream in get_args(Stream) if stream in needed)

    def made_of(self) -> tuple[type[Regularizer], ...]:
        return type(self), *(used for _, regularizer in self.parts for used in regularizer.made_of())

    def value(self, policy: Policy, reference: Policy) -> Tensor:
        return self._sum(lambda regularizer: regularizer.value(policy, reference))

    def logit_gradient(self, policy: Policy, reference: Policy) -> Tensor:
        return self._sum(lambda regularizer: regularizer.logit_gradient(policy, reference))

    def log_linear(self) -> LogLinear | None:
        """The weighted sum of the parts' forms; None unless all parts have one and average over the same responses."""
        forms = [(weight, regularizer.log_linear()) for weight, regularizer in self.parts]
        known = [(weight, form) for weight, form in forms if form is not None]
        measures = {form.measure for _, form in known if form.policy or form.reference}
        if len(known) < len(forms) or len(measures) > 1:
            return None
        return LogLinear(
            measures.pop() if measures else "policy",
            policy=sum(weight * form.policy for weight, form in known),
            reference=sum(weight * form.reference for weight, form in known),
            log_mass=sum(weight * form.log_mass for weight, form in known),
            log_reference_mass=sum(weight * form.log_reference_mass for weight, form in known),
        )

    def surrogate_weights(
        self, reference: ResponseGroups | None, rollout: ResponseGroups | None, config: SurrogateConfig
    ) -> SurrogateWeights:
        return SurrogateWeights.total(
            (weight, regularizer.surrogate_weights(reference, rollout, config)) for weight, regularizer in self.parts
        )

    def _sum(self, face: Callable[[Regularizer], Tensor]) -> Tensor:
        return torch.stack([weight * face(regularizer) for weight, regularizer in self.parts]).sum(0)


def parse(name: str) -> list[tuple[float, str]] | None:
    """The weights, above 0, and names of a mixture's parts; None for a name of another form.

    Examples:
        >>> parse("0.3cokl+0.7entropy")
        [(0.3, 'cokl'), (0.7, 'entropy')]
    """
    matches = [_PART.fullmatch(part) for part in name.split("+")]
    parts = [(float(part[1]), part[2]) for part in matches if part]
    return parts if len(parts) == len(matches) and all(weight > 0 for weight, _ in parts) else None
