"""What every lab does alike: it resumes to the same bytes, refuses what is not its own, and answers on one screen."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from bandit import labs
from bandit.lab import on_screen, write
from bandit.labs import LABS
from bandit.sequences.config import SequenceConfig
from bandit.sweep.robustness import RobustnessConfig
from cokl import regularizers
from cokl.support.errors import InputError
from cokl.support.results import Execution
from tests.bandit.conftest import TINY, TINY_FLAGS
from tests.bandit.finite_group.conftest import TINY as TINY_GROUPS
from tests.bandit.plasticity.conftest import TINY as TINY_PLASTICITY
from tests.bandit.shift.conftest import TINY_SHIFT

TINY_SEQUENCES = SequenceConfig(
    methods=("none", "cokl", "correct_forward_kl"), betas=(0.1, 1.0), seeds=1, selection_seeds=1, mode="sampled",
    length=3, symbols=3, forbidden=1, clusters=2, input_dim=3, train_inputs=12, test_inputs=5, steps=2, eval_interval=1,
    batch_size=3, group_size=3, reference_group_size=2, buffer_size=8, kl_groups=4, hidden=(5,), pretrain_steps=8,
    pretrain_batch_size=6, prior_steps=3,
)  # fmt: skip
CONFIGS: dict[str, Any] = {
    "sweep": TINY,
    "robustness": RobustnessConfig(TINY, neighbours=0, fields=("init_scale",)),
    "shift": TINY_SHIFT,
    "plasticity": TINY_PLASTICITY,
    "sequences": TINY_SEQUENCES,
    "finite-group": TINY_GROUPS,
}

MINE = LABS["sweep"]
"""As another package would name it."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> dict[str, Path]:
    """A finished folder of each lab, made by one process."""
    folders = {name: tmp_path_factory.mktemp(name) for name in CONFIGS}
    for name, config in CONFIGS.items():
        LABS[name].train(config, Execution(out=folders[name], jobs=1))
    return folders


def content(name: str, folder: Path) -> dict[str, bytes]:
    """The lab's tables."""
    return {table: (folder / f"{table}.parquet").read_bytes() for table in LABS[name].results}


def test_every_lab_is_looked_at():
    assert list(CONFIGS) == list(LABS)


@pytest.mark.parametrize("name", LABS)
def test_what_is_missing_is_computed_again_to_the_same_bytes_and_nothing_else_is(name, finished, tmp_path):
    """By two processes."""
    folder = tmp_path / "copy"
    subprocess.run(["cp", "-a", str(finished[name]), str(folder)], check=True)
    made = content(name, folder)
    runs = sorted(folder.rglob("runs/*.parquet"))
    assert len(runs) > 1
    runs[0].unlink()
    for table in made:
        (folder / f"{table}.parquet").unlink()
    before = {path: path.stat().st_mtime_ns for path in runs[1:]}
    LABS[name].train(CONFIGS[name], Execution(out=folder, jobs=2))
    assert content(name, folder) == made
    assert {path: path.stat().st_mtime_ns for path in runs[1:]} == before
    assert runs[0].is_file()


@pytest.mark.parametrize("name", LABS)
def test_a_folder_of_another_configuration_is_refused_and_the_difference_named(name, finished):
    config = CONFIGS[name]
    if name == "robustness":
        other, field = dataclasses.replace(config, neighbours=1), "neighbours: 0 there, 1 asked for"
    else:
        there = config.seeds
        other, field = dataclasses.replace(config, seeds=there + 1), f"seeds: {there} there, {there + 1} asked for"
    with pytest.raises(InputError, match=field):
        LABS[name].train(other, Execution(out=finished[name], jobs=1))


CLASS = """
from cokl import regularizers
@regularizers.register
class Mine(type(regularizers.get("forward_kl"))):
    name, label = "mine", "Mine"
    def value(self, policy, reference):
        return {scale} * super().value(policy, reference)
"""


@pytest.mark.parametrize("name", LABS)
def test_the_results_of_a_class_are_not_those_of_the_class_that_it_became(name, tmp_path, monkeypatch):
    """A class of another package, as an entry point registers it."""
    monkeypatch.setattr(regularizers, "_registry", dict(regularizers._registry))
    monkeypatch.syspath_prepend(tmp_path)
    own: Any = {"methods": ("none", "cokl", "mine")}
    if name == "robustness":
        config = dataclasses.replace(CONFIGS[name], sweep=dataclasses.replace(TINY, **own))
    else:
        config = dataclasses.replace(CONFIGS[name], **own)
    execution = Execution(out=tmp_path / "out", jobs=1)
    path = tmp_path / "own_class.py"
    path.write_text(CLASS.format(scale=1))
    module = importlib.import_module("own_class")
    try:
        LABS[name].train(config, execution)
        path.write_text(CLASS.format(scale=1000))
        importlib.reload(module)
        with pytest.raises(InputError, match=r"code\.mine\.own_class: \w+ there, \w+ asked for"):
            LABS[name].train(config, execution)
    finally:
        del sys.modules["own_class"]


@pytest.mark.parametrize("name", LABS)
def test_a_folder_in_use_and_a_damaged_run_are_refused_in_one_line(name, finished, tmp_path):
    folder = tmp_path / "copy"
    subprocess.run(["cp", "-a", str(finished[name]), str(folder)], check=True)
    with FileLock(folder / ".lock"), pytest.raises(InputError, match="is in use by another run"):
        LABS[name].train(CONFIGS[name], Execution(out=folder, jobs=1))
    path = next(iter(sorted(folder.rglob("runs/*.parquet"))))
    damaged = bytearray(path.read_bytes())
    damaged[200] ^= 255  # within the first page
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="is damaged") as refused:
        LABS[name].train(CONFIGS[name], Execution(out=folder, jobs=1))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", LABS)
def test_a_screen_is_an_answer_a_table_and_the_next_command(name, finished, tmp_path):
    """With too few seeds for a verdict; results.md and every table are written, the pictures drawn."""
    lab = LABS[name]
    analysis = lab.analyse(*lab.read(finished[name]))
    lines = on_screen(analysis, Path("runs")).splitlines()
    assert len(lines) <= 25
    assert not any(word in lines[0] for word in (" ahead of ", " behind "))
    assert "too few" in " ".join(lines[:4])
    assert lines[-1] == "Next: cokl report --results runs"
    assert "Everything: runs/results.md" in lines
    write(analysis, lab.title, tmp_path)
    assert {path.stem for path in tmp_path.glob("*.csv")} == set(analysis.tables)
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {lab.title}\n\n**{analysis.answer}.**\n")
    assert all(f"## {table}.csv" in page for table in analysis.captions)
    verdicts = [line.rpartition(": ")[2] for line in page.splitlines() if line.startswith("### ")]
    assert not {"held", "not held", "undecided", "depends"} & set(verdicts)
    assert set(lab.draw(analysis)) or name == "robustness"


def command(name: str, out: Path) -> list[str]:
    flags = ["--methods", "none,forward_kl,cokl", "--betas", "0.01,0.1", "--seeds", "2", *TINY_FLAGS]
    return [sys.executable, "-m", "cokl_cli", "bandit", name, *flags, "--jobs", "2", "--out", str(out)]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_a_command_that_is_stopped_resumes_to_the_same_bytes(stop, finished, tmp_path):
    """The signal goes to the whole group of processes, as a terminal sends it."""
    folder = tmp_path / "stopped"
    long = [*command("sweep", folder), "--steps", "4000"]
    process = subprocess.Popen(long, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not list(folder.glob("reference/*.parquet")):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, stop)
    said = process.communicate(timeout=600)[1]
    assert process.returncode == (-stop if stop == signal.SIGKILL else 128 + stop)
    if stop != signal.SIGKILL:
        assert "Traceback" not in said
        assert (
            said.strip().splitlines()[-1].startswith("cokl: interrupted; the same command resumes what is saved: cokl")
        )
    config = json.loads((folder / "config.json").read_text())
    config["steps"] = TINY.steps  # the references are the same; what is left is short
    (folder / "config.json").write_text(json.dumps(config))
    LABS["sweep"].train(TINY, Execution(out=folder, jobs=1))
    assert content("sweep", folder) == content("sweep", finished["sweep"])


def test_another_packages_lab_joins_and_what_is_no_lab_is_refused(monkeypatch):
    def named(*values: str) -> None:
        entries = [EntryPoint(name, value, labs.ENTRY_POINTS) for name, value in (one.split("=") for one in values)]
        monkeypatch.setattr(labs, "entry_points", lambda group: entries)
        labs.labs.cache_clear()

    named("mine=tests.bandit.test_labs:MINE")
    assert [*labs.labs()][-1] == "mine"
    for value, said in (
        ("mine=json:loads", "expected a bandit.lab.Lab"),
        ("sweep=tests.bandit.test_labs:MINE", "entry point sweep of cokl.labs: .*taken"),
    ):
        named(value)
        with pytest.raises(InputError, match=said):
            labs.labs()
    labs.labs.cache_clear()
