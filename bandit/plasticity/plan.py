"""Which policies phase 1 makes, which are trained as one stack, and which changes each of them meets."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Literal

from bandit.engine.runs import Run, stacks
from cokl import methods

_RUNS_PER_STACK = 5


@dataclass(frozen=True)
class Start(Run):
    """A policy that phase 2 starts from.

    phase: how phase 1 was trained; the reference is not. cached: G_ref, 0 where nothing cached is weighted.
    """

    phase: Literal["reference", "exact", "sampled"]
    cached: int = 0

    @property
    def name(self) -> str:
        """What tables call its method."""
        return "reference" if self.phase == "reference" else self.method.name

    @property
    def identity(self) -> tuple[str, str, int, float]:
        """phase, method, cached, beta: what names it up to its seed."""
        return self.phase, self.name, self.cached, self.beta


def planned(config: Any, seed: int) -> list[Start]:
    """Every policy of one seed. Raises InputError for unknown methods and for one that cannot be sampled.

    config: a `TwoPhases` with regularizer_options.
    """
    starts = [Start(seed, methods.get("none"), 0.0, "reference")]
    for phase, name in [(one, name) for one in config.phases for name in one.methods]:
        method = methods.get(name, config.regularizer_options)
        cached = phase.name == "sampled" and "reference" in method.streams()
        betas = sorted(phase.betas) if method.regularizer is not None else [0.0]
        both = itertools.product(phase.cached if cached else (0,), betas)
        starts += [Start(seed, method, beta, phase.name, size) for size, beta in both]
    return starts


def stacked(starts: list[Start]) -> list[list[Start]]:
    """Policies that are trained as one stack: those of a seed that differ in their coefficient only."""
    return stacks(starts, lambda start: (start.seed, *start.identity[:3]), _RUNS_PER_STACK)


def meets_all(start: Start, primary: str, matched: set[tuple[str, str, int, float]]) -> bool:
    """Whether a policy of a reported seed meets every change: those nearest the match, of the `primary` phase 1."""
    return start.phase == "reference" or (
        start.phase == primary and (start.method.regularizer is None or start.identity in matched)
    )
