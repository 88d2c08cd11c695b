"""What a run of the preset will do and how long it takes, told before it starts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from llm_bridge.experiment.config import MATH, LLMConfig
from llm_bridge.experiment.jobs import Job
from llm_bridge.experiment.workloads import Pace

MACHINE = "an idle AMD EPYC with one thread, where this was measured; OMP_NUM_THREADS=2 takes three quarters of that"


def told(jobs: Sequence[Job], config: LLMConfig, pace: Pace) -> str:
    """A line for every job that is not done, with its minutes, and one with their sum."""
    evaluation = config.eval_samples * pace.evaluated * pace.response
    lines, total = [], 0.0
    for job in jobs:
        rows = sum(job.rows.values())
        seconds = pace.start + (job.steps * pace.row or pace.response) * rows
        seconds += math.ceil(job.steps / config.eval_interval) * evaluation
        if job.name == MATH:  # evaluated once more, on the candidates
            seconds += pace.start + config.eval_samples * pace.candidates * pace.response
        if not job.done:
            what = f"{job.steps} steps of {rows} rows" if job.steps else f"{rows} responses"
            lines.append(f"  {job.name}: {what}, about {seconds / 60:.0f} minutes")
            total += seconds
    lines.append(f"  in all about {total / 60:.0f} minutes on {MACHINE}")
    return "\n".join([f"{config.workload.start.title}:", *lines])
