"""`python -m benchmarks sweep`: naive loop, engine and floor side by side, and the whole paper sweep if asked for.

Engine and floor are measured in one process per core, all at the same time, each with one thread and each going through
all contestants in turn; a process's time per run is divided by the number of processes. The naive loop is measured in
between, alone on the machine, with one thread and with all cores as threads, of which the better counts; and once more
in one process per core, which is how a patient researcher would run it. Figures are medians over rounds, in seconds per
1,000-step run, so that a busy or throttled moment falls on all alike.
"""

from __future__ import annotations

import json
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import joblib
import tyro
from joblib.externals.loky import get_reusable_executor
from tqdm import tqdm

from bandit.sweep.config import PRESETS
from bandit.sweep.plan import RUNS_PER_CHUNK_CPU, planned_runs
from bandit.sweep.run import run_sweep
from benchmarks import naive
from cokl.support.errors import InputError
from cokl.support.workers import usable_cores


@dataclass(frozen=True)
class Sweep:
    """Naive loop, engine and floor, in seconds per 1,000-step run; --full adds the whole paper sweep."""

    rounds: int = 3
    """Rounds through all contestants; medians count."""
    steps: int = 200
    """Steps of one measurement."""
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
    methods = tuple(naive.PENALTIES)
    seconds: dict[str, list[float]] = {}
    with joblib.Parallel(n_jobs=cores) as parallel:
        parallel(joblib.delayed(_contestants)(2) for _ in range(cores))  # start the processes and compile kernels
        for _ in tqdm(range(rounds), desc="rounds", unit="round"):
            for part in parallel(joblib.delayed(_contestants)(steps) for _ in range(cores)):
                _note(seconds, part, 1000 / cores)
            for threads in sorted({1, cores}):
                _note(seconds, _naive_alone(steps, threads), 1000)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    by_method = {
        "naive_s": {m: min(medians[f"naive {m}, threads {n}"] for n in (1, cores)) for m in methods},
        "naive_process_per_core_s": {m: medians[f"naive {m}"] for m in methods},
        "engine_s": {m: medians[f"engine {m}"] for m in methods},
    }
    means = {name: statistics.mean(values.values()) for name, values in by_method.items()}
    result = {
        "cores": cores,
        "rounds": rounds,
        "steps": steps,
        **means,
        "floor_s": medians["floor"],
        "naive_over_engine": means["naive_s"] / means["engine_s"],
        "naive_process_per_core_over_engine": means["naive_process_per_core_s"] / means["engine_s"],
        "engine_over_floor": means["engine_s"] / medians["floor"],
        "by_method": by_method,
    }
    return {**result, **_whole_sweep(steps)} if full else result


def table(result: dict[str, Any]) -> str:
    """The figures as a short table."""
    by_method = result["by_method"]
    lines = [
        f"seconds per 1,000-step run on {result['cores']} cores",
        f"{'':18} {'naive':>7} {'per core':>9} {'engine':>7}   naive / engine",
    ]
    for method in by_method["engine_s"]:
        alone, per_core, engine = (values[method] for values in by_method.values())
        lines.append(f"{method:18} {alone:7.3f} {per_core:9.3f} {engine:7.3f} {alone / engine:8.1f}")
    lines += [
        f"{'mean':18} {result['naive_s']:7.3f} {result['naive_process_per_core_s']:9.3f} {result['engine_s']:7.3f} "
        f"{result['naive_over_engine']:8.1f}",
        f"{'floor':18} {'':17} {result['floor_s']:7.3f}   engine / floor {result['engine_over_floor']:.2f}",
        "per core: the naive loop in one process per core instead of its best number of threads in one process",
    ]
    if "sweep_s" in result:
        lines.append(
            f"whole paper sweep {result['sweep_s']:.0f} s = {result['sweep_over_floor']:.2f} x the floor around it; "
            f"peak memory {result['peak_memory_mb']:.0f} MB over all processes"
        )
    return "\n".join(lines)


def _note(seconds: dict[str, list[float]], part: dict[str, list[float]], factor: float) -> None:
    for name, values in part.items():
        seconds.setdefault(name, []).extend(factor * value for value in values)


def _contestants(steps: int, methods: tuple[str, ...] = tuple(naive.PENALTIES)) -> dict[str, list[float]]:
    """Seconds per run and step with one thread: the floor before each method, then engine and naive loop."""
    import torch

    from bandit.engine.environment import Environment
    from benchmarks.engine import engine_step_seconds, floor_step_seconds, naive_step_seconds, untrained_task

    torch.set_num_threads(1)
    config = PRESETS["paper"]
    task, environment = untrained_task(config), Environment(config.environment, 0)
    seconds: dict[str, list[float]] = {"floor": [floor_step_seconds(config, task, RUNS_PER_CHUNK_CPU, steps)]}
    for method in methods:
        seconds[f"engine {method}"] = [engine_step_seconds(config, task, method, RUNS_PER_CHUNK_CPU, steps)]
        seconds["floor"].append(floor_step_seconds(config, task, RUNS_PER_CHUNK_CPU, steps))
        seconds[f"naive {method}"] = [naive_step_seconds(config, environment, method, steps)]
    return seconds


def _naive_alone(steps: int, threads: int) -> dict[str, list[float]]:
    import torch

    from bandit.engine.environment import Environment
    from benchmarks.engine import naive_step_seconds

    torch.set_num_threads(threads)
    config = PRESETS["paper"]
    environment = Environment(config.environment, 0)
    return {
        f"naive {method}, threads {threads}": [naive_step_seconds(config, environment, method, steps)]
        for method in naive.PENALTIES
    }


def _whole_sweep(steps: int) -> dict[str, float]:
    """Seconds and peak memory of the paper sweep in fresh processes, and the floor measured right before and after."""
    cores = usable_cores()
    seconds: dict[str, list[float]] = {}

    def measure_floor() -> None:
        with joblib.Parallel(n_jobs=cores) as parallel:
            for part in parallel(joblib.delayed(_contestants)(5 * steps, ()) for _ in range(cores)):
                _note(seconds, part, 1000 / cores)
        get_reusable_executor().shutdown(wait=True)

    measure_floor()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        run_sweep(PRESETS["paper"], folder)
        sweep_s = time.perf_counter() - start
        # The system keeps the maximum over ended children, which stands here for each of them.
        get_reusable_executor().shutdown(wait=True)
        child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    measure_floor()
    runs = len(planned_runs(PRESETS["paper"])) + PRESETS["paper"].seeds
    floor = statistics.mean(seconds["floor"])
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "sweep_s": sweep_s,
        "sweep_floor_s": floor,
        "sweep_over_floor": sweep_s / (runs * floor),
        "peak_memory_mb": (own + cores * child) / 1024,
    }
