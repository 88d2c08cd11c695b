"""The runs of one seed, as VeRL's options, and the job that trains them one after another."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cokl.support.files import hold, write_text
from llm_bridge.experiment.config import PRESETS, LLMConfig
from llm_bridge.experiment.jobs import command_line, environment, several_job
from llm_bridge.experiment.plasticity.config import GRID, START, PlasticityConfig
from llm_bridge.experiment.plasticity.reward import STAGES
from llm_bridge.experiment.plasticity.start import make_start
from llm_bridge.experiment.supervise import one_job_at_a_time, run_watched

METRICS, DONE = "metrics.jsonl", "done"
"""In a run's folder: VeRL's log, and what a finished run leaves."""
STALL = 1800.0
"""Seconds without a line of output after which a job is ended as hung."""


@dataclass(frozen=True)
class Run:
    """One training run: a stage with a method. Stage 2 starts where the method's stage 1 ended."""

    stage: int
    method: str
    beta: float = 0.0

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.stage}-{self.method}-{self.beta:g}"


def selection_runs() -> list[Run]:
    """Stage 1 with every method and coefficient."""
    return [Run(1, method, beta) for method, grid in GRID.items() for beta in grid]


def reported_runs(chosen: dict[str, float]) -> list[Run]:
    """Both stages of each method with its coefficient, and stage 2 from the starting model."""
    return [Run(2, START), *(Run(stage, method, beta) for method, beta in chosen.items() for stage in (1, 2))]


def train(config: PlasticityConfig, seed: int, runs: list[Run], folder: Path) -> None:
    """Train what is not done of a seed's runs, in one VeRL job. FOLDER/RUN/metrics.jsonl is VeRL's log of each.

    Raises InputError if the job fails or hangs.
    """
    if all((folder / run.name / DONE).is_file() for run in runs):
        return
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{time.strftime('%H:%M:%S')}  seed {seed}: {len(runs)} runs", flush=True)
    with hold(folder / "running.lock", f"{folder} is being worked on by another process") as own:
        start = folder / "start"
        make_start(config, seed, start)
        listed = [_described(config, run, start, folder) for run in runs]
        write_text(json.dumps(listed, indent=1), folder / "runs.json")
        settings = replace(llm_config(config, seed), own_data=str(start))
        job = several_job(
            settings, folder, start / "model", folder / "runs.json", config.batch * config.cached_per_prompt
        )
        with one_job_at_a_time() as cluster:
            run_watched(
                [sys.executable, *command_line(job.overrides)],
                environment(settings, job, folder / "metrics.jsonl"),
                folder / "log.txt",
                STALL,
                (own, cluster),
            )


def end_of(config: PlasticityConfig, run: Run, folder: Path) -> Path:
    """The actor's last checkpoint of a run in a seed's folder."""
    return folder / run.name / "checkpoints" / f"global_step_{config.steps[run.stage - 1]}" / "actor"


def llm_config(config: PlasticityConfig, seed: int) -> LLMConfig:
    """What the bridge's jobs read."""
    return replace(
        PRESETS["tiny"],
        seed=seed,
        math_batch=config.batch,
        group_size=config.group_size,
        math_learning_rate=config.learning_rate,
        max_response_length=config.max_response_length,
        reward_function="pkg://llm_bridge.experiment.plasticity.reward:compute_score",
        loggers=("console", "file"),
    )


def _described(config: PlasticityConfig, run: Run, start: Path, folder: Path) -> dict[str, Any]:
    """A run as the trainer `several` reads it."""
    data = str(start / f"{STAGES[run.stage - 1]}.parquet")
    steps = config.steps[run.stage - 1]
    options: dict[str, Any] = {
        "trainer.v1.trainer_mode": "rewarded",
        "trainer.total_training_steps": steps,
        "trainer.save_freq": steps,
        "trainer.default_local_dir": str(folder / run.name / "checkpoints"),
        "trainer.test_freq": -1,
        "data.train_files": data,
        "data.val_files": data,
        "actor_rollout_ref.actor.entropy_coeff": run.beta * (run.method == "entropy" and run.stage == 1),
    }
    if run.stage == 1 and run.method not in ("grpo", "entropy"):
        options["trainer.v1.trainer_mode"] = "cokl_rewarded"
        cokl: dict[str, Any] = {"method": run.method, "beta": run.beta, "prompts": "training", "length": "token-mean"}
        if run.method != "reverse_kl":
            cokl |= {"buffer": str(start / "buffer.parquet"), "cached_per_prompt": config.cached_per_prompt}
        options["cokl"] = cokl | {"seed": 0}
    weights = "" if run.stage == 1 or run.method == START else str(end_of(config, replace(run, stage=1), folder))
    place = folder / run.name
    return {"options": options, "weights": weights, "metrics": str(place / METRICS), "done": str(place / DONE)}
