"""Several runs of one VeRL job against the same runs as jobs of their own: real VeRL and vLLM, every logged number."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

from llm_bridge.experiment.jobs import command_line, environment, several_job
from llm_bridge.experiment.plasticity.config import PlasticityConfig
from llm_bridge.experiment.plasticity.runs import METRICS, Run, end_of, llm_config, train

pytestmark = pytest.mark.usefixtures("only_cluster")

CONFIG = PlasticityConfig(
    pretraining_steps=100, prompts=8, batch=4, group_size=4, cached=8, cached_per_prompt=2, steps=(3, 3)
)
SEED = 5
RUNS = [Run(1, "grpo"), Run(1, "cokl", 0.5), Run(2, "cokl", 0.5)]


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Path:
    """A seed's folder with three runs of one job."""
    folder = tmp_path_factory.mktemp("together")
    train(CONFIG, SEED, RUNS, folder)
    return folder


def alone(together: Path, folder: Path, number: int) -> list[dict[str, Any]]:
    """The log of one of the runs, as a job of its own that starts from its Hugging Face model."""
    run = RUNS[number]
    described = json.loads((together / "runs.json").read_text())[number]
    settings = replace(llm_config(CONFIG, SEED), own_data=str(together / "start"))
    model = together / "start" / "model"
    if described["weights"]:
        model = end_of(CONFIG, replace(run, stage=1), together) / "huggingface"
    job = several_job(settings, folder, model, together / "runs.json", CONFIG.batch * CONFIG.cached_per_prompt)
    options = {**described["options"], "trainer.default_local_dir": str(folder / "checkpoints")}
    cokl = options.pop("cokl", {})
    kept = [override for override in job.overrides if not override.startswith("+cokl.runs")]
    given = [f"{name}={value!r}" for name, value in options.items()]
    overrides = [*kept, *given, *(f"+cokl.{name}={value!r}" for name, value in cokl.items())]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("wb") as log:
        subprocess.run(
            [sys.executable, *command_line(overrides)], check=True, cwd=folder, stdout=log, stderr=log, timeout=1500,
            env=environment(settings, job, folder / METRICS),
        )  # fmt: skip
    return logged(folder)


def logged(folder: Path) -> list[dict[str, Any]]:
    """VeRL's metrics by step, without those that measure the machine."""
    lines = [json.loads(line)["data"] for line in (folder / METRICS).read_text().splitlines()]
    machine = ("timing", "perf/", "actor/perf/")
    return [{name: value for name, value in line.items() if not name.startswith(machine)} for line in lines]


@pytest.mark.parametrize("number", [1, 2])
def test_a_run_gives_every_number_of_a_job_of_its_own(together, tmp_path, number):
    """The second follows another loss and data order, the third another optimizer state and other weights."""
    assert RUNS[number].stage == number
    ours = logged(together / RUNS[number].name)
    assert len(ours) == CONFIG.steps[number - 1]
    assert ours[-1]["actor/grad_norm"] > 0
    for mine, theirs in zip(alone(together, tmp_path / "alone", number), ours, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            if name.startswith(("training/rollout_", "rollout_corr/")):
                # vLLM's own log-probabilities depend in the last bits on how requests meet in its batches.
                assert mine[name] == pytest.approx(theirs[name], rel=1e-6, abs=1e-6), name
            else:
                assert json.dumps(mine[name]) == json.dumps(theirs[name]), name  # NaN and null too
