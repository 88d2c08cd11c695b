"""Which runs the sequence lab trains."""

from __future__ import annotations

import itertools

from bandit.sequences.config import SequenceConfig
from bandit.sequences.exact import MOST_LISTED, is_exact
from bandit.two_tasks.plan import ShiftRun, kl_prompts
from cokl import methods
from cokl.support.errors import InputError


def planned_runs(config: SequenceConfig) -> list[ShiftRun]:
    """All runs of the lab, by seed, mode, method and coefficient. Raises InputError.

    A method whose expectations cannot be had is left out of exact mode, and an error if there is no other.
    """
    chosen = [methods.get(name, config.regularizer_options) for name in config.methods]
    runs = []
    for seed, mode, method in itertools.product(config.roles, config.modes, chosen):
        if mode == "sampled":
            method.streams()  # raises for a regularizer that cannot be sampled, before anything is trained
        elif not is_exact(method, config.length, config.symbols):
            if config.modes == ("exact",):
                raise InputError(
                    f"{method.name}: its expectations take a list of all responses, at most {MOST_LISTED}, and there "
                    f"are {config.symbols}^{config.length}; use --mode sampled for it"
                )
            continue
        betas = [0.0] if method.regularizer is None else sorted(config.betas)
        runs += [ShiftRun(seed, mode, method, beta, kl_prompts(config.kl_groups, method)) for beta in betas]
    return runs
