"""`python -m benchmarks steps`: engine, floor and naive loop step by step, on a CPU.

One process per core, all at the same time, each with one thread. In each, for each method, the three take one step in
turn, so that a busy or throttled moment falls on all alike, and each finds the caches as the others left them. A ratio
is taken within a turn. A block is a process, a method and a round; it has the median of its turns' ratios. What is
reported is the median over blocks with its 95 % interval, from order statistics.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

import joblib
import numpy as np
from tqdm import tqdm

from bandit.sweep.config import PRESETS
from bandit.sweep.train import RUNS_PER_CHUNK_CPU
from benchmarks import naive
from benchmarks.paired import Ratio, where
from cokl.support.errors import InputError
from cokl.support.results import usable_cores

ROUNDS = 5


@dataclass(frozen=True)
class Steps:
    """The naive loop's seconds over the engine's, and the engine's over the floor's."""

    steps: int = 60
    """Turns of one method in one round."""

    def run(self) -> int:
        """Measure and print a line a ratio."""
        if self.steps < 1:
            raise InputError(f"steps: expected at least 1, got {self.steps}")
        print(f"{where('cpu')}, {usable_cores()} cores, one process each")
        for name, ratio in measure(self.steps).items():
            print(f"{name}: {ratio} ({ratio.count} blocks of {self.steps} paired steps)")
        return 0


def measure(steps: int) -> dict[str, Ratio]:
    """Both ratios, by name."""
    cores = usable_cores()
    with joblib.Parallel(n_jobs=cores) as parallel:
        parallel(joblib.delayed(_turns)(method, 2) for method in naive.PENALTIES for _ in range(cores))  # compiles
        work = [method for _ in range(ROUNDS) for method in naive.PENALTIES]
        blocks = [
            np.array(turns).T
            for method in tqdm(work, desc="methods", unit="method")
            for turns in parallel(joblib.delayed(_turns)(method, steps) for _ in range(cores))
        ]
    return {
        "naive over engine": Ratio.of([float(np.median(loop / engine)) for _, engine, loop in blocks]),
        "engine over floor": Ratio.of([float(np.median(engine / floor)) for floor, engine, _ in blocks]),
    }


def _turns(method: str, steps: int) -> list[tuple[float, float, float]]:
    """Seconds per run of one step of the floor, the engine and the naive loop, for each turn but the first two."""
    import torch

    from bandit.engine.environment import Environment
    from benchmarks.engine import engine_steps, floor_step, untrained_task

    torch.set_num_threads(1)
    config, runs = dataclasses.replace(PRESETS["paper"], steps=2 + steps), RUNS_PER_CHUNK_CPU
    task = untrained_task(config, "cpu")
    floor, engine = floor_step(config, task, runs), engine_steps(config, task, method, runs)
    training = naive.training(config, Environment(config.environment, 0), method, 0.01)
    turns = []
    for _ in range(2 + steps):
        times = [time.perf_counter()]
        with torch.no_grad():
            floor()
            times.append(time.perf_counter())
            next(engine)
            times.append(time.perf_counter())
        next(training)
        times.append(time.perf_counter())
        turns.append(((times[1] - times[0]) / runs, (times[2] - times[1]) / runs, times[3] - times[2]))
    return turns[2:]
