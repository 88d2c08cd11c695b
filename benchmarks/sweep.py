"""`python -m benchmarks sweep`: naive loop, engine and floor side by side, and the whole paper sweep if asked for.

One process per core measures at the same time as the others, each with one thread and each going through all
contestants in turn, so that a busy or throttled moment falls on all of them alike. Figures are medians over repeats,
in seconds per 1,000-step run of the whole machine: a process's time per run divided by the number of processes. The
naive loop is also measured in one process with all cores as threads, and its better time counts.
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

from bandit.config import PRESETS
from bandit.runner import RUNS_PER_CHUNK_CPU, planned_runs, sweep, usable_cores


@dataclass(frozen=True)
class Sweep:
    """Naive loop, engine and floor, in seconds per 1,000-step run; --full adds the whole paper sweep."""

    repeats: int = 5
    """Measurements of each contestant in each process; the median counts."""
    steps: int = 100
    """Steps of one measurement."""
    full: bool = False
    """Time the whole paper sweep too: 355 runs, references and evaluations included."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write all figures to this file."""

    def run(self) -> int:
        """Measure, print a table, write the JSON."""
        result = measure(self.repeats, self.steps, self.full)
        print(table(result))
        if self.json:
            self.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        return 0


def measure(repeats: int, steps: int, full: bool) -> dict[str, Any]:
    """All figures as JSON values; see the module's docstring for their meaning."""
    cores = usable_cores()
    whole: dict[str, Any] = {}
    rounds = [_concurrently(cores, repeats, steps)]
    if full:
        whole = _whole_sweep()
        rounds.append(_concurrently(cores, repeats, steps))
    seconds = {name: statistics.median(time for r in rounds for time in r[name]) * 1000 / cores for name in rounds[0]}
    with joblib.parallel_config(n_jobs=1):
        threaded = _naive_with_threads(cores, repeats, steps)
    methods = PRESETS["paper"].methods
    naive = {method: min(seconds[f"naive {method}"], threaded[method]) for method in methods}
    engine = {method: seconds[f"engine {method}"] for method in methods}
    mean_naive, mean_engine = statistics.mean(naive.values()), statistics.mean(engine.values())
    result = {
        "cores": cores,
        "repeats": repeats,
        "steps": steps,
        "naive_s": mean_naive,
        "engine_s": mean_engine,
        "floor_s": seconds["floor"],
        "naive_over_engine": mean_naive / mean_engine,
        "engine_over_floor": mean_engine / seconds["floor"],
        "naive_s_by_method": naive,
        "naive_threads_by_method": {m: cores if threaded[m] < seconds[f"naive {m}"] else 1 for m in methods},
        "engine_s_by_method": engine,
    }
    if full:
        runs = len(planned_runs(PRESETS["paper"])) + PRESETS["paper"].seeds
        whole["sweep_over_floor"] = whole["sweep_s"] / (runs * seconds["floor"])
    return {**result, **whole}


def table(result: dict[str, Any]) -> str:
    """The figures as a short table."""
    lines = [f"seconds per 1,000-step run, {result['cores']} cores", f"{'':16}   naive  engine   ratio"]
    for method, engine in result["engine_s_by_method"].items():
        naive = result["naive_s_by_method"][method]
        lines.append(f"{method:16} {naive:7.3f} {engine:7.3f} {naive / engine:6.1f}x")
    lines += [
        f"{'mean':16} {result['naive_s']:7.3f} {result['engine_s']:7.3f} {result['naive_over_engine']:6.1f}x",
        f"{'floor':16} {'':7} {result['floor_s']:7.3f}   engine is {result['engine_over_floor']:.2f} x floor",
    ]
    if "sweep_s" in result:
        lines.append(
            f"whole paper sweep {result['sweep_s']:.0f} s = {result['sweep_over_floor']:.2f} x floor, "
            f"peak memory {result['peak_memory_mb']:.0f} MB over all processes"
        )
    return "\n".join(lines)


def _concurrently(cores: int, repeats: int, steps: int) -> dict[str, list[float]]:
    """Seconds per run and step of each contestant, all processes' measurements together."""
    with joblib.Parallel(n_jobs=cores) as parallel:
        parallel(joblib.delayed(_contestants)(1, 2) for _ in range(cores))  # start processes and compile kernels
        parts = parallel(joblib.delayed(_contestants)(repeats, steps) for _ in range(cores))
    return {name: [time for part in parts for time in part[name]] for name in parts[0]}


def _contestants(repeats: int, steps: int) -> dict[str, list[float]]:
    import torch

    from bandit.environment import Environment
    from benchmarks import naive
    from benchmarks.engine import engine_step_seconds, floor_step_seconds, untrained_task

    torch.set_num_threads(1)
    config = PRESETS["paper"]
    task, environment = untrained_task(config), Environment(config.environment, 0)
    seconds: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        seconds.setdefault(name, []).append(value)

    for _ in range(repeats):
        for method in config.methods:
            note("floor", floor_step_seconds(config, task, RUNS_PER_CHUNK_CPU, steps))
            note(f"engine {method}", engine_step_seconds(config, task, method, RUNS_PER_CHUNK_CPU, steps))
            note(f"naive {method}", _naive_step_seconds(naive.train, environment, method, steps))
    return seconds


def _naive_step_seconds(train: Any, environment: Any, method: str, steps: int) -> float:
    start = time.perf_counter()
    train(PRESETS["paper"], environment, method, 0.01, steps)
    return (time.perf_counter() - start) / steps


def _naive_with_threads(cores: int, repeats: int, steps: int) -> dict[str, float]:
    import torch

    from bandit.environment import Environment
    from benchmarks import naive

    torch.set_num_threads(cores)
    environment = Environment(PRESETS["paper"].environment, 0)
    return {
        method: 1000
        * statistics.median(_naive_step_seconds(naive.train, environment, method, steps) for _ in range(repeats))
        for method in PRESETS["paper"].methods
    }


def _whole_sweep() -> dict[str, float]:
    """Seconds and peak memory of the paper sweep in fresh processes; memory is the sum over processes."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        sweep(PRESETS["paper"], Path(folder))
        seconds = time.perf_counter() - start
    # Linux counts the children's maximum over single children, so it stands for each of them.
    get_reusable_executor().shutdown(wait=True)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {"sweep_s": seconds, "peak_memory_mb": (own + usable_cores() * child) / 1024}
