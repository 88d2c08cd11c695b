"""Several runs of one VeRL job against the same runs as jobs of their own: real VeRL and vLLM, every logged number."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

from llm_bridge.experiment.jobs import command_line, environment, several_job
from llm_bridge.experiment.studies.plasticity.config import PlasticityConfig
from llm_bridge.experiment.studies.plasticity.study import Plasticity
from llm_bridge.experiment.studies.strength.config import StrengthConfig
from llm_bridge.experiment.studies.strength.study import Strength
from llm_bridge.experiment.studies.study import METRICS, RUNS, STEPS, Run, read_rows, scored_runs

pytestmark = pytest.mark.usefixtures("only_cluster")

STUDY = Plasticity(
    PlasticityConfig(
        pretraining_steps=100,
        prompts=8,
        batch=4,
        group_size=4,
        cached=8,
        cached_per_prompt=2,
        steps=(3, 3),
        selection_seeds=(5,),
    )
)
SEED = 5
THREE = [Run(1, "grpo"), Run(1, "cokl", 0.5), Run(2, "cokl", 0.5)]


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Path:
    """A seed's folder with three runs of one job."""
    folder = tmp_path_factory.mktemp("together")
    STUDY.train(SEED, THREE, folder)
    return folder


def alone(together: Path, folder: Path, number: int) -> list[dict[str, Any]]:
    """The log of one of the runs, as a job of its own, with VeRL's agent-loop and reward workers, that starts from its
    Hugging Face model.
    """
    run = THREE[number]
    described = json.loads((together / "runs.json").read_text())[number]
    settings = replace(STUDY.settings(SEED), own_data=str(together / "start"))
    model = together / "start" / "model"
    if described["weights"]:
        model = STUDY.end_of(replace(run, stage=1), together) / "huggingface"
    job = several_job(settings, folder, model, together / "runs.json")
    options = {**described["options"], "trainer.default_local_dir": str(folder / "checkpoints")}
    cokl = options.pop("cokl", {})
    kept = [name for name in job.overrides if "cokl.runs" not in name and "agent_loop_manager_class" not in name]
    assert len(kept) == len(job.overrides) - 2
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
    assert THREE[number].stage == number
    ours = logged(together / THREE[number].name)
    assert len(ours) == STUDY.steps(THREE[number])
    assert ours[-1]["actor/grad_norm"] > 0
    for mine, theirs in zip(alone(together, tmp_path / "alone", number), ours, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            assert json.dumps(mine[name]) == json.dumps(theirs[name]), name  # NaN and null too


def test_a_study_runs_from_an_empty_folder_and_resumes_from_its_rows(tmp_path, monkeypatch):
    """What `cokl llm strength` calls, at the smallest size; the second call finds every row."""
    grid = {"grpo": (0.0,), "cokl": (0.5,)}
    monkeypatch.setattr("llm_bridge.experiment.studies.strength.study.GRID", grid)
    monkeypatch.setattr("llm_bridge.experiment.studies.strength.report.GRID", grid)
    config = StrengthConfig(
        selection_seeds=(6,), reported_seeds=(7,), again_seeds=(), pretraining_steps=50, buffer_prompts=8, batch=4,
        cached=4, group_size=4, steps=2, chat_samples=1,
    )  # fmt: skip
    study = Strength(config)
    study.run(tmp_path, [6], keep_going=False)
    runs, steps = (read_rows(tmp_path, name) for name in (RUNS, STEPS))
    assert scored_runs(tmp_path, 6) == {Run(0, "base"), Run(1, "grpo"), Run(1, "cokl", 0.5)}
    assert set(runs["set"]) == {"math_val", "math500", "olympiad", "chat_val"}
    assert steps.groupby("method")["step"].apply(list).to_dict() == {"cokl": [1, 2], "grpo": [1, 2]}
    assert steps[steps["method"] == "cokl"]["gradient_share"].between(0, 1, inclusive="neither").all()
    shutil.rmtree(tmp_path / "seed-6")
    study.run(tmp_path, [6], keep_going=False)
    assert not (tmp_path / "seed-6" / "log.txt").exists()
