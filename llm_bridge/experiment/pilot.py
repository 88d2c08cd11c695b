"""A pilot before the experiment: a few joint steps per way of counting a response's length, and what they say.

They start from the starting model, without a math stage, and say how strong the regularizer is beside the reward. They
do not say which coefficient is best: that depends on the tasks. `WANTED` is a rule of thumb, not a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from cokl.groups import LENGTHS
from llm_bridge.experiment.config import LLMConfig
from llm_bridge.experiment.jobs import Job, buffer_job, chat_job, quoted
from llm_bridge.experiment.logged import read_metrics
from llm_bridge.experiment.stages import Experiment

STEPS, WANTED = 20, 0.2
"""Joint steps per length, and the regularizer's share of the squared gradient norm that a coefficient is told for."""
BUFFER_PROMPTS = 64


def pilot_jobs(experiment: Experiment, config: LLMConfig) -> list[Job]:
    """A buffer, and CoKL's chat stage with each length; none leaves a checkpoint. config: with its models' folders."""
    root, model = experiment.root, config.model or experiment.root / "data" / "model"
    config = replace(config, chat_steps=STEPS, buffer_prompts=min(BUFFER_PROMPTS, config.buffer_prompts))
    jobs = [buffer_job(config, root, model)]  # type: ignore[arg-type]
    for length in LENGTHS:
        job = chat_job(replace(config, length=length), root, model, "cokl")  # type: ignore[arg-type]
        folder = root / "pilot" / length
        changes = (
            f"trainer.default_local_dir={quoted(folder / 'checkpoints')}",
            "trainer.resume_mode=disable",
            "trainer.save_freq=-1",
            "trainer.test_freq=-1",
        )
        rows = {kind: STEPS * count for kind, count in job.rows.items()}
        jobs.append(Job(f"pilot/{length}", folder, (*job.overrides, *changes), 0, rows))
    return jobs


def coefficient(share: float, beta: float) -> float:
    """The one with which the regularizer would have had the share `WANTED`, where `beta` gave it `share`."""
    return beta * math.sqrt(WANTED / (1 - WANTED) * (1 - share) / share) if 0 < share < 1 else math.nan


def verdict(jobs: Iterable[Job], config: LLMConfig) -> str:
    """A line per length that has run, and what to take."""
    beta = config.beta("cokl")
    lines = [
        f"{STEPS} joint steps of CoKL at coefficient {beta:g}; chat reward: mean of the first and of the last 5 steps",
        f"{'length':11} {'gradient share':>14} {'coefficient':>12} {'chat reward':>16} {'s a step':>9} {'peak GiB':>9}",
    ]
    for job in jobs:
        steps = [metrics for _, metrics in sorted(read_metrics(job.folder / "metrics").items())]
        shares = [step["cokl/gradient_share"] for step in steps if step.get("cokl/gradient_share", math.nan) < 1]
        if not shares:
            continue
        rewards = [step["critic/score/mean"] for step in steps]
        seconds = [step["perf/time_per_step"] for step in steps[1:]] or [math.nan]
        name = "max_memory_reserved_gb" if config.device == "cuda" else "cpu_memory_used_gb"
        memory = [value for step in steps for key, value in step.items() if key.endswith(name)]
        share, length = float(np.mean(shares)), job.folder.name
        lines.append(
            f"{length:11} {share:14.3f} {coefficient(share, beta):12.3g} "
            f"{np.mean(rewards[:5]):7.3f} {np.mean(rewards[-5:]):8.3f} {np.median(seconds):9.1f} "
            f"{max(memory, default=math.nan):9.1f}"
        )
        if length == config.length:
            lines.append(
                f"  begin with a coefficient of {coefficient(share, beta):.2g} and --length {length}, by --beta of "
                f"`cokl llm train` or +cokl.beta of a VeRL command: a share of {WANTED:g}, by which the regularizer is "
                "felt and not in charge; double it if the old task is still forgotten, halve it if the reward no "
                "longer rises"
            )
    memory_of = "one process's device" if config.device == "cuda" else "all that the machine had in use"
    lines.append(f"share: of the squared gradient norm, over steps with an RL gradient; memory: {memory_of}")
    return "\n".join(lines)
