"""Which runs the sweep trains, and which of them are trained as one stack."""

from __future__ import annotations

import itertools

from bandit.engine.runs import Run, stacks
from bandit.sweep.config import SweepConfig
from cokl import methods

# Stacked runs per process: enough to amortise the reference's share, few enough for activations to stay in cache.
RUNS_PER_CHUNK_CPU = 5
RUNS_PER_CHUNK_CUDA = 512


def planned_runs(config: SweepConfig) -> list[Run]:
    """All runs of a sweep, by seed, then method in the order asked for, then coefficient. Raises InputError."""
    runs = []
    chosen = [methods.get(name, config.regularizer_options) for name in config.methods]
    for seed, method in itertools.product(range(config.seeds), chosen):
        betas = [0.0] if method.regularizer is None else sorted(config.betas)
        runs += [Run(seed, method, beta) for beta in betas]
    return runs


def stacked(runs: list[Run], device: str) -> list[list[Run]]:
    """Runs that are trained as one stack: one seed, and on a CPU one method, so that no stack waits for another's."""
    if device == "cuda":
        return stacks(runs, lambda run: run.seed, RUNS_PER_CHUNK_CUDA)
    return stacks(runs, lambda run: (run.seed, run.method.name), RUNS_PER_CHUNK_CPU)
