"""What a run on two tasks is, and which runs are trained as one stack."""

from __future__ import annotations

from dataclasses import dataclass

from bandit.engine.runs import stacks
from bandit.engine.two_tasks.config import Mode
from cokl.methods import Method

RUN = ["mode", "method", "beta", "kl_prompts"]
"""What names a run, up to its seed."""

# Stacked runs per process: enough to amortise a step's fixed cost, few enough for activations to stay in cache.
_RUNS_PER_CHUNK = 12


@dataclass(frozen=True)
class ShiftRun:
    """One training run on the new task. beta and kl_prompts are 0 for unregularized RL."""

    seed: int
    mode: Mode
    method: Method
    beta: float
    kl_prompts: int


def kl_prompts(groups: int, method: Method) -> int:
    """Prompts of the buffer per update outside the KL-batch sweep, 0 for unregularized RL (E.3).

    As many as make so many response groups; a regularizer that cannot be sampled counts as one stream.
    """
    if method.regularizer is None:
        return 0
    streams = len(method.streams()) if method.regularizer.streams else 1
    return max(1, groups // streams)


def stacked(runs: list[ShiftRun]) -> list[list[ShiftRun]]:
    """Runs that are trained as one stack: those that differ in their coefficient only, at most so many."""
    return stacks(runs, lambda run: (run.seed, run.mode, run.method.name, run.kl_prompts), _RUNS_PER_CHUNK)
