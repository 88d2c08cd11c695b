"""`python -m benchmarks sweep`: the paper's sweep on a device, its matrix products alone, a naive loop, the CPU's run.

The whole preset is timed: references, runs and evaluations. A CPU has a process a core, a GPU one; they have started,
and used the device, before the clock does. The floor is measured right before and after. The naive loop's seconds are
those of its steps for all runs, on all cores of the CPU, without references and evaluations. The CPU's run follows,
also where the device is the CPU; its metrics are then the same.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from statistics import mean
from typing import Literal

import joblib
import numpy as np
import pandas as pd
import torch

from bandit.engine.runs import resolve_device
from bandit.sweep.config import PRESETS, SweepConfig, preset
from bandit.sweep.train import planned_runs, run_sweep, stacked
from benchmarks.paired import now, where
from cokl.support.results import Execution, usable_cores

SMALL = preset("quick", seeds=2, steps=50, eval_interval=25, pretrain_steps=50)


@dataclass(frozen=True)
class Sweep:
    """Seconds of the paper's sweep on a device, over the floor's and the CPU's, and how far its metrics are apart."""

    device: Literal["cpu", "cuda"] = "cpu"
    """Where the sweep is timed."""
    small: bool = False
    """A small sweep of 50 steps instead, to try the benchmark out."""

    def run(self) -> int:
        """Measure and print a table."""
        resolve_device(self.device)
        config = dataclasses.replace(SMALL if self.small else PRESETS["paper"], device=self.device)
        print(f"{where(self.device)}: {len(planned_runs(config))} runs of {config.steps} steps")
        before = floor(config)
        seconds, table = timed(config)
        over_floor = seconds / mean([before, floor(config)])
        print(f"sweep: {seconds:.1f} s, {over_floor:.2f} times its matrix products alone", flush=True)
        print(f"a naive loop on the CPU: {(naive_loop(config) / seconds):.2f} times the sweep's seconds", flush=True)
        on_cpu, expected = timed(dataclasses.replace(config, device="cpu"))
        print(f"the CPU's: {on_cpu:.1f} s on {usable_cores()} cores, {on_cpu / seconds:.2f} times the device's")
        largest, median = apart(table, expected)
        print(f"metrics beside the CPU's: at most {largest:.1e} apart, {median:.1e} in the median")
        return 0


def timed(config: SweepConfig) -> tuple[float, pd.DataFrame]:
    """Seconds of the sweep, and its table."""
    start = time.perf_counter()
    table = run_sweep(config, Execution(jobs=_processes(config)))
    return time.perf_counter() - start, table


def floor(config: SweepConfig) -> float:
    """Seconds that the matrix products of all runs and references take alone."""
    largest = max(map(len, stacked(planned_runs(config), config.device)))
    processes = _processes(config)
    with joblib.Parallel(n_jobs=processes) as parallel:
        each = parallel(joblib.delayed(_floor)(config, largest) for _ in range(processes))
    steps = len(planned_runs(config)) * config.steps + config.seeds * config.pretrain_steps
    return steps * mean(each) / processes


def naive_loop(config: SweepConfig) -> float:
    """Seconds that the steps of all runs take in a naive loop, a process a core of the CPU."""
    from benchmarks.naive import PENALTIES

    cores = usable_cores()
    with joblib.Parallel(n_jobs=cores) as parallel:
        each = parallel(joblib.delayed(_naive)(config, method) for method in PENALTIES for _ in range(cores))
    return len(planned_runs(config)) * config.steps * mean(each) / cores


def apart(table: pd.DataFrame, expected: pd.DataFrame) -> tuple[float, float]:
    """The largest and the median difference of a metric between two sweeps' tables, whose rows are the same runs'."""
    keys = ["seed", "method", "beta", "step"]
    gaps = (table.set_index(keys) - expected.set_index(keys)).abs().to_numpy()
    return float(np.nanmax(gaps)), float(np.nanmedian(gaps))


def _processes(config: SweepConfig) -> int:
    return 1 if config.device == "cuda" else usable_cores()


def _floor(config: SweepConfig, runs: int, steps: int = 200) -> float:
    """Seconds per run and step of the floor alone, in a stack of `runs`."""
    from benchmarks.engine import floor_step, untrained_task
    from cokl.support.results import one_thread

    with one_thread():
        step = floor_step(config, untrained_task(config, config.device), runs)
        for _ in range(20):
            step()
        start = now(config.device)
        for _ in range(steps):
            step()
        return (now(config.device) - start) / (runs * steps)


def _naive(config: SweepConfig, method: str, steps: int = 60) -> float:
    """Seconds of one step of one run in a naive loop."""
    from bandit.engine.environment import Environment
    from benchmarks.naive import training

    torch.set_num_threads(1)
    loop = training(dataclasses.replace(config, steps=steps + 10), Environment(config.environment, 0), method, 0.01)
    for _ in range(10):
        next(loop)
    start = time.perf_counter()
    for _ in range(steps):
        next(loop)
    return (time.perf_counter() - start) / steps
