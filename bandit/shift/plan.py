"""Which runs the task-shift lab trains, and which of them are trained as one stack."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from bandit.shift.config import Mode, ShiftConfig
from cokl import methods
from cokl.methods import Method
from cokl.support.errors import InputError

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


def planned_runs(config: ShiftConfig) -> list[ShiftRun]:
    """All runs of the lab, by seed, mode, method and coefficient. Raises InputError.

    The KL-batch sweep concerns those of `config.kl_sweep_methods` that are trained at all, on the reported seeds.
    """
    chosen = [methods.get(name, config.regularizer_options) for name in config.methods]
    for name in config.kl_sweep_methods:
        if methods.get(name).regularizer is None:
            raise InputError(f"kl_sweep_methods: expected methods with a regularizer, got {name}")
    runs = []
    for (seed, role), mode, method in itertools.product(config.roles.items(), config.modes, chosen):
        if mode == "sampled":
            method.streams()  # raises for a regularizer that cannot be sampled, before anything is trained
        if method.regularizer is None:
            settings = [(0.0, 0)]
        else:
            settings = [(beta, kl_prompts(config.kl_groups, method)) for beta in sorted(config.betas)]
            if role == "report" and method.name in config.kl_sweep_methods:
                settings += [(config.kl_sweep_beta, size) for size in config.kl_sweep]
        runs += [ShiftRun(seed, mode, method, *setting) for setting in dict.fromkeys(settings)]
    return runs


def kl_prompts(groups: int, method: Method) -> int:
    """Prompts of the buffer per update outside the KL-batch sweep, 0 for unregularized RL (E.3).

    As many as make so many response groups; a regularizer that cannot be sampled counts as one stream.
    """
    if method.regularizer is None:
        return 0
    streams = len(method.streams()) if method.regularizer.streams else 1
    return max(1, groups // streams)


def stacks(runs: list[ShiftRun]) -> list[list[ShiftRun]]:
    """Runs that are trained as one stack: those that differ in their coefficient only, at most so many."""

    def key(run: ShiftRun) -> tuple[int, Mode, str, int]:
        return run.seed, run.mode, run.method.name, run.kl_prompts

    stacks: dict[tuple[int, Mode, str, int], list[ShiftRun]] = {}
    for run in runs:
        stacks.setdefault(key(run), []).append(run)
    return [
        piece.tolist()
        for stack in stacks.values()
        for piece in np.array_split(np.array(stack, dtype=object), -(-len(stack) // _RUNS_PER_CHUNK))
    ]
