"""`python -m benchmarks scaling`: cost per run and step against stacked runs, actions, hidden width and clusters.

One process, one thread. Each family is fitted by seconds ~ size^exponent on its larger half; a cliff would show as an
exponent above what the matrix products explain, which is 1 for actions, at most 2 for width, and 0 for the others.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import resource
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from bandit.sweep.config import PRESETS, SweepConfig
from bandit.sweep.plan import RUNS_PER_CHUNK_CPU

RUNS = (1, 2, 3, 5, 7, 14, 28, 70, 140, 355)
ACTIONS = (200, 500, 1000, 2000, 5000, 10_000)
WIDTHS = (64, 128, 256, 512, 1024)
CLUSTERS = (48, 200, 1000, 5000)


@dataclass(frozen=True)
class Scaling:
    """Cost per run and step against the number of stacked runs, actions, hidden width and clusters."""

    repeats: int = 3
    """Measurements of each size; the median counts."""
    method: str = "cokl"
    """Regularizer to train with."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write all figures to this file."""

    def run(self) -> int:
        """Measure, print a table, write the JSON."""
        import torch

        from benchmarks.engine import engine_step_seconds, floor_step_seconds, untrained_task

        torch.set_num_threads(1)
        result: dict[str, Any] = {"method": self.method, "families": {}}
        for family, sizes in _families().items():
            rows = []
            for size, (config, runs) in sizes.items():
                task = untrained_task(config)
                steps = max(2, round(2e11 / (runs * _flops(config))))
                engine_step_seconds(config, task, self.method, runs, 1)
                pairs = [
                    (
                        engine_step_seconds(config, task, self.method, runs, steps),
                        floor_step_seconds(config, task, runs, steps),
                    )
                    for _ in range(self.repeats)
                ]
                engine, floor = (statistics.median(column) for column in zip(*pairs, strict=True))
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                rows.append({"size": size, "engine_s": engine, "floor_s": floor, "peak_memory_mb_so_far": memory})
                print(
                    f"{family:8} {size:6}  engine {engine * 1e6:9.0f} us  floor {floor * 1e6:9.0f} us  "
                    f"ratio {engine / floor:5.2f}  memory so far {memory:6.0f} MB",
                    flush=True,
                )
            exponent = _exponent(rows[len(rows) // 2 :])
            print(f"{family:8} seconds per run and step ~ size^{exponent:.2f}\n")
            result["families"][family] = {"rows": rows, "exponent": exponent}
        if self.json:
            self.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        return 0


def _families() -> dict[str, dict[int, tuple[SweepConfig, int]]]:
    """Each family's sizes, with the configuration and the number of stacked runs."""
    # Evaluations are left out: one at the start, which is all that a short measurement has.
    base = dataclasses.replace(PRESETS["paper"], eval_interval=10**9)
    few = dataclasses.replace(base.environment, test_inputs=500)
    base = dataclasses.replace(base, environment=few)

    def environment(**changes: Any) -> SweepConfig:
        return dataclasses.replace(base, environment=dataclasses.replace(few, **changes))

    return {
        "runs": {runs: (base, runs) for runs in RUNS},
        "actions": {actions: (environment(actions=actions), 2) for actions in ACTIONS},
        "width": {w: (dataclasses.replace(base, hidden=(w, w)), RUNS_PER_CHUNK_CPU) for w in WIDTHS},
        "clusters": {clusters: (environment(clusters=clusters), RUNS_PER_CHUNK_CPU) for clusters in CLUSTERS},
    }


def _flops(config: SweepConfig) -> int:
    """Floating-point operations of one run's step, forward and backward."""
    sizes = (config.environment.input_dim, *config.hidden, config.environment.actions)
    return 6 * config.batch_size * sum(a * b for a, b in itertools.pairwise(sizes))


def _exponent(rows: list[dict[str, float]]) -> float:
    """Least-squares slope of log seconds on log size."""
    return statistics.linear_regression(
        [math.log(row["size"]) for row in rows], [math.log(row["engine_s"]) for row in rows]
    ).slope
