"""Which runs the finite-group lab trains."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from bandit.engine.runs import Run
from bandit.finite_group.config import FiniteGroupConfig
from cokl import methods
from cokl.support.errors import InputError

EXACT = "exact"


@dataclass(frozen=True)
class GroupRun(Run):
    """A run, and how its regularizer is estimated.

    groups: "exact", with an infinite `group_size`, or one of the config's reference groups. optimizer_steps: mu.
    """

    groups: str
    group_size: float
    optimizer_steps: int


def planned_runs(config: FiniteGroupConfig) -> list[GroupRun]:
    """All runs, by seed, method and how the regularizer is estimated, then coefficient. Raises InputError.

    Each method is trained on its exact objective and with fresh groups of every G, for every mu if it weighs rollouts.
    With the first mu alone, methods that weigh both streams are trained with the other reference groups.
    """
    runs = []
    for seed, name in itertools.product(range(config.seeds), config.methods):
        method = methods.get(name, config.regularizer_options)
        streams = method.streams()
        # Without rollouts there is no policy to be off.
        possible = config.optimizer_steps if "rollout" in streams else config.optimizer_steps[:1]
        estimates = [(EXACT, math.inf, optimizer_steps) for optimizer_steps in possible]
        both = len(streams) == 2
        steps_of = {"fresh": possible if streams else (), "cached": config.optimizer_steps[: int(both)]}
        steps_of["unfiltered"] = config.optimizer_steps[: int(both and method.filtered)]
        for groups in config.reference_groups:
            for optimizer_steps, size in itertools.product(steps_of[groups], config.group_sizes):
                estimates.append((groups, float(size), optimizer_steps))
        betas = sorted(config.betas) if method.regularizer is not None else [0.0]
        for estimate, beta in itertools.product(estimates, betas):
            runs.append(GroupRun(seed, method, beta, *estimate))
    if all(run.groups == EXACT for run in runs):
        raise InputError("methods: expected one that the reference groups can estimate; nothing else is compared here")
    return runs
