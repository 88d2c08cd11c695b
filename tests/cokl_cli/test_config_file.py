"""`--config FILE`: what a result has stored is read back as it is, and one flag changes one setting."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from bandit.labs import LABS
from bandit.sweep.config import PRESETS, SweepConfig
from bandit.sweep.train import run_sweep
from cokl.support.results import Execution
from cokl_cli.app import _parse
from llm_bridge.experiment.config import PRESETS as LLM
from tests.bandit import conftest as sweep_miniature
from tests.cokl_cli.test_bad_input import refusal


def saved(values: dict[str, Any], folder: Path) -> Path:
    """config.json as a results folder has it."""
    path = folder / "config.json"
    path.write_text(json.dumps({**values, "device": values.get("device", "cpu")}))
    return path


def read(*arguments: str | Path) -> Any:
    """The command that the arguments name."""
    return _parse([str(argument) for argument in arguments])


@pytest.mark.parametrize(("name", "chosen"), [(name, preset) for name, lab in LABS.items() for preset in lab.presets])
def test_every_labs_configuration_comes_back(name, chosen, tmp_path):
    config = LABS[name].presets[chosen]
    command = read("bandit", name, "--config", saved(config.as_dict(), tmp_path))
    assert command.config == config
    assert command.folder == Path("runs") / ("config" if name == "sweep" else f"{name}-config")


def test_a_finished_result_runs_again_with_one_flag_changed(tmp_path):
    small = dataclasses.replace(sweep_miniature.TINY, seeds=1, methods=("none", "cokl"), betas=(0.1,), device="cpu")
    run_sweep(small, Execution(out=tmp_path, jobs=1), progress=False)
    assert read("bandit", "sweep", "--config", tmp_path / "config.json").config == small
    assert read("reproduce", f"--config={tmp_path / 'config.json'}").config == small
    shown = read("bandit", "sweep", "--correct-actions", "3", "--config", tmp_path / "config.json").config
    assert shown == dataclasses.replace(small, environment=dataclasses.replace(small.environment, correct_actions=3))


def test_the_llm_experiments_configuration_comes_back(tmp_path):
    stored = LLM["qwen3-4b"].as_dict() | {"overrides": ["a.b=1"]}
    command = read("llm", "run", "--config", saved(stored, tmp_path), "--kl-groups", "4")
    assert command.settings == dataclasses.replace(LLM["qwen3-4b"], kl_groups=4)
    assert command.overrides == ("a.b=1",)


def test_a_file_may_name_only_what_differs_from_the_preset(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"methods": ["none", "cokl"], "betas": [1e-2, 0.3], "hidden": [], "environment": {"clusters": 2}}')
    command = read("bandit", "sweep", "--preset", "quick", "--config", path)
    wanted: SweepConfig = dataclasses.replace(PRESETS["quick"], methods=("none", "cokl"), betas=(1e-2, 0.3), hidden=())
    wanted = dataclasses.replace(wanted, environment=dataclasses.replace(wanted.environment, clusters=2))
    assert (command.config, command.folder) == (wanted, Path("runs/mine"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot read"),
        (b'{"betas": [0.1', "no JSON (Expecting"),
        (b"[" * 100_000, "no JSON ("),
        (b"", "no JSON (Expecting value"),
        (b"3", "expected settings by name"),
        (b'{"beta": [0.1]}', "no setting 'beta' (did you mean betas?); settings: "),
        (b'{"environment": {"clustres": 3}}', "no setting 'clustres' (did you mean clusters?); settings: "),
        (b'{"seeds": "many"}', "seeds: expected int, got 'many'"),
        (b'{"betas": 0.1}', "betas: expected a tuple of float, got 0.1"),
        (b'{"betas": [NaN]}', "betas"),
        (b'{"environment": 3}', "environment: expected settings by name, got 3"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(text, says, tmp_path, capsys):
    path = tmp_path / "mine.json"
    if text is not None:
        path.write_bytes(text)
    assert says in refusal(capsys, "bandit", "sweep", "--config", str(path))
