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

    groups: "exact", with an infinite `group_size`, or one of the config's reference groups. epochs: mu.
    """

    groups: str
    group_size: float
    epochs: int


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
        all_epochs = config.epochs if "rollout" in streams else config.epochs[:1]
        estimates = [(EXACT, math.inf, epochs) for epochs in all_epochs]
        both = len(streams) == 2
        epochs_of = {"fresh": all_epochs if streams else (), "cached": config.epochs[: int(both)]}
        epochs_of["unfiltered"] = config.epochs[: int(both and method.filtered)]
        for groups in config.reference_groups:
            for epochs, size in itertools.product(epochs_of[groups], config.group_sizes):
                estimates.append((groups, float(size), epochs))
        betas = sorted(config.betas) if method.regularizer is not None else [0.0]
        for estimate, beta in itertools.product(estimates, betas):
            runs.append(GroupRun(seed, method, beta, *estimate))
    if all(run.groups == EXACT for run in runs):
        raise InputError("methods: expected one that the reference groups can estimate; nothing else is compared here")
    return runs
