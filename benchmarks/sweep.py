"""`python -m benchmarks sweep`: engine, floor and naive loop step by step, and the whole paper sweep if asked for.

One process per core, all at the same time, each with one thread. In each, for each method, the three take one step in
turn, so that a busy or throttled moment falls on all alike, and each finds the caches as the others left them. A ratio
is taken within a turn. A block is a process, a method and a round; it has the median of its turns' ratios. What is
reported is the median over blocks with its 95 % interval, from order statistics. Seconds are a process's, divided by
the number of processes.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any

import joblib
import numpy as np
import tyro
from joblib.externals.loky import get_reusable_executor
from scipy.stats import quantile_test
from tqdm import tqdm

from bandit.sweep.config import PRESETS
from bandit.sweep.train import RUNS_PER_CHUNK_CPU, planned_runs, run_sweep
from benchmarks import naive
from cokl.support.errors import InputError
from cokl.support.results import Execution, usable_cores

RATIOS = {"naive_over_engine": ("naive", "engine"), "engine_over_floor": ("engine", "floor")}


@dataclass(frozen=True)
class Sweep:
    """Naive loop, engine and floor, in seconds per 1,000-step run; --full adds the whole paper sweep."""

    rounds: int = 2
    """Rounds through all methods."""
    steps: int = 60
    """Turns of one method in one round."""
    full: bool = False
    """Time the whole paper sweep too: 355 runs, references and evaluations included."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write all figures to this file."""

    def run(self) -> int:
        """Measure, print a table, write the JSON."""
        if self.rounds < 1 or self.steps < 1:
            raise InputError(f"rounds and steps: expected at least 1, got {self.rounds} and {self.steps}")
        result = measure(self.rounds, self.steps, self.full)
        print(table(result))
        if self.json:
            self.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        return 0


def measure(rounds: int, steps: int, full: bool) -> dict[str, Any]:
    """All figures as JSON values; see the module's docstring for their meaning."""
    cores = usable_cores()
    with joblib.Parallel(n_jobs=cores) as parallel:
        parallel(joblib.delayed(_turns)(method, 2) for method in naive.PENALTIES for _ in range(cores))  # compiles
        work = [method for _ in range(rounds) for method in naive.PENALTIES]
        blocks = [
            {"method": method, **dict(zip(("floor", "engine", "naive"), np.array(turns).T, strict=True))}
            for method in tqdm(work, desc="methods", unit="method")
            for turns in parallel(joblib.delayed(_turns)(method, steps) for _ in range(cores))
        ]
    result = {
        "cores": cores,
        "rounds": rounds,
        "steps": steps,
        "by_method": {
            f"{name}_s": {
                method: 1000 / cores * median([np.median(block[name]) for block in blocks if block["method"] == method])
                for method in naive.PENALTIES
            }
            for name in ("naive", "engine", "floor")
        },
        **{
            name: _with_interval([float(np.median(block[above] / block[below])) for block in blocks])
            for name, (above, below) in RATIOS.items()
        },
    }
    return {**result, **_whole_sweep(steps)} if full else result


def _with_interval(ratios: list[float]) -> dict[str, Any]:
    interval: Any = quantile_test(ratios, p=0.5).confidence_interval()
    return {"median": median(ratios), "interval_95": [float(interval.low), float(interval.high)], "blocks": len(ratios)}


def table(result: dict[str, Any]) -> str:
    """The figures as a short table."""
    by_method = result["by_method"]
    lines = [
        f"seconds per 1,000-step run on {result['cores']} cores, one process each",
        f"{'':18} {'naive':>7} {'engine':>7} {'floor':>7}",
    ]
    for method in by_method["engine_s"]:
        lines.append(f"{method:18}" + "".join(f" {values[method]:7.3f}" for values in by_method.values()))
    for name in RATIOS:
        ratio = result[name]
        low, high = ratio["interval_95"]
        lines.append(
            f"{name.replace('_', ' ')}: {ratio['median']:.2f}, 95% interval {low:.2f} to {high:.2f} "
            f"({ratio['blocks']} blocks of {result['steps']} paired steps)"
        )
    if "sweep_s" in result:
        lines.append(
            f"whole paper sweep {result['sweep_s']:.0f} s = {result['sweep_over_floor']:.2f} x the floor around it; "
            f"peak memory {result['peak_memory_mb']:.0f} MB over all processes"
        )
    return "\n".join(lines)


def _turns(method: str, steps: int) -> list[tuple[float, float, float]]:
    """Seconds per run of one step of the floor, the engine and the naive loop, for each turn but the first two."""
    import torch

    from bandit.engine.environment import Environment
    from benchmarks.engine import engine_step, floor_step, untrained_task

    torch.set_num_threads(1)
    config, runs = PRESETS["paper"], RUNS_PER_CHUNK_CPU
    task = untrained_task(config)
    floor, engine = floor_step(config, task, runs), engine_step(config, task, method, runs)
    training = naive.training(config, Environment(config.environment, 0), method, 0.01)
    turns = []
    for _ in range(2 + steps):
        times = [time.perf_counter()]
        with torch.no_grad():
            floor()
            times.append(time.perf_counter())
            engine()
            times.append(time.perf_counter())
        next(training)
        times.append(time.perf_counter())
        turns.append(((times[1] - times[0]) / runs, (times[2] - times[1]) / runs, times[3] - times[2]))
    return turns[2:]


def _whole_sweep(steps: int) -> dict[str, float]:
    """Seconds and peak memory of the paper sweep in fresh processes, and the floor measured right before and after."""
    cores = usable_cores()
    seconds: list[float] = []

    def measure_floor() -> None:
        with joblib.Parallel(n_jobs=cores) as parallel:
            seconds.extend(parallel(joblib.delayed(_floor)(5 * steps) for _ in range(cores)))
        get_reusable_executor().shutdown(wait=True)

    measure_floor()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        run_sweep(PRESETS["paper"], Execution(out=Path(folder)))
        sweep_s = time.perf_counter() - start
        # The system keeps the maximum over ended children, which stands here for each of them.
        get_reusable_executor().shutdown(wait=True)
        child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    measure_floor()
    runs = len(planned_runs(PRESETS["paper"])) + PRESETS["paper"].seeds
    floor = 1000 / cores * mean(seconds)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "sweep_s": sweep_s,
        "sweep_floor_s": floor,
        "sweep_over_floor": sweep_s / (runs * floor),
        "peak_memory_mb": (own + cores * child) / 1024,
    }


def _floor(steps: int) -> float:
    """Seconds per run and step of the floor alone."""
    import torch

    from benchmarks.engine import floor_step, untrained_task

    torch.set_num_threads(1)
    config, runs = PRESETS["paper"], RUNS_PER_CHUNK_CPU
    step = floor_step(config, untrained_task(config), runs)
    start = time.perf_counter()
    with torch.no_grad():
        for _ in range(steps):
            step()
    return (time.perf_counter() - start) / (runs * steps)
