"""Which runs the task-shift lab trains."""

from __future__ import annotations

import itertools

from bandit.shift.config import ShiftConfig
from bandit.two_tasks.plan import ShiftRun, kl_prompts
from cokl import methods
from cokl.support.errors import InputError


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
