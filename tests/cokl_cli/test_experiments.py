"""An experiment of a dozen lines gets command, help, resume, page and logbook by registering."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path

import pytest
from cokl_cli.experiments import experiments, finished

from cokl.support import experiment as registry
from cokl_cli.app import main
from cokl_cli.report import logbook

TOY = '''
"""A toy."""
from dataclasses import dataclass

import pandas as pd

from cokl.support.assumptions import assumption
from cokl.support.results import Experiment, register
from cokl.support.files import read_parquet, write_result
from cokl.support.results_folder import open_folder
from cokl.support.verdicts import Claim

@dataclass(frozen=True)
class ToyConfig:
    """A number.

    n: from which the squares are counted.
    """
    n: int = 3
    start: int = assumption(0, "where the squares begin")
    """The first number."""

    def as_dict(self):
        return {"n": self.n, "start": self.start, "device": "cpu"}

@register
class Toy(Experiment):
    name, title, area, command, order = "toy_squares", "Squares", "toy", "cokl bandit toy-squares", 90
    summary, tables = "Square a few numbers. Resumes.", ("squares.parquet",)
    presets = {"paper": ToyConfig(), "quick": ToyConfig(2)}

    def train(self, config, execution):
        folder = execution.out
        with open_folder(folder, config.as_dict(), {"toy": "1"}, execution.keep_going):
            if not (folder / "squares.parquet").exists():
                numbers = range(config.start, config.start + config.n)
                write_result(pd.DataFrame({"square": [number**2 for number in numbers]}), folder / "squares.parquet")
        return read_parquet(folder / "squares.parquet")

    def report(self, trained, config, folder):
        return f"{len(trained)} squares"

    def claims(self, folder):
        return [Claim("Squares grow", "nowhere", "4 above 1", "held")]
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The toy's module, registered while a test runs."""
    experiments()  # those that are there anyway
    path = tmp_path / "toy.py"
    path.write_text(TOY)
    spec = importlib.util.spec_from_file_location("toy", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "toy", module)
    spec.loader.exec_module(module)
    yield module
    registry._REGISTERED.pop("toy_squares")


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(str(ended.value.code))


def test_a_toy_has_all_that_an_experiment_has(toy, tmp_path, capsys):
    assert run("bandit", "--help") == 0
    assert "toy-squares" in capsys.readouterr().out
    assert run("bandit", "toy-squares", "--help") == 0
    assert "--start" in capsys.readouterr().out
    folder = tmp_path / "runs" / "toy"
    assert run("bandit", "toy-squares", "--preset", "quick", "--n", 5, "--out", folder) == 0
    assert "5 squares" in capsys.readouterr().out
    before = (folder / "squares.parquet").stat().st_mtime_ns
    assert run("bandit", "toy-squares", "--preset", "quick", "--n", 5, "--out", folder, "--csv") == 0
    assert (folder / "squares.parquet").stat().st_mtime_ns == before
    assert (folder / "squares.csv").read_text().split() == ["square", "0", "1", "4", "9", "16"]
    assert finished(tmp_path / "runs") == {"toy_squares": [folder]}

    assert run("report", "--results", tmp_path / "runs") == 0
    page = (tmp_path / "runs" / "report.html").read_text(encoding="utf-8")
    assert '<section id="toy-squares"><h2>Squares</h2>' in page
    assert "Squares grow" in page
    assert run("logbook", tmp_path / "runs", "--out", tmp_path) == 0
    record = json.loads((tmp_path / "REPRODUCTION.json").read_text())["toy_squares"]
    assert record["claims"] == [
        {"statement": "Squares grow", "where": "nowhere", "verdict": "held", "measured": ["4 above 1"]}
    ]
    assert record["command"] == "cokl bandit toy-squares --n 5"
    assert "## Squares\n\nMade by `cokl bandit toy-squares --n 5`" in (tmp_path / "REPRODUCTION.md").read_text()


def test_a_name_that_is_taken_is_refused(toy):
    from cokl.support.errors import InputError

    class Other(registry.Experiment):
        name = "toy_squares"

    with pytest.raises(InputError, match="'toy_squares' is registered already, by toy"):
        registry.register(Other)


def test_every_experiment_says_what_it_is():
    for name, experiment in experiments().items():
        assert experiment.name == name
        assert experiment.title
        assert experiment.command.startswith("cokl ")
        assert not experiment.presets or {"paper", "quick"} <= set(experiment.presets)
        assert all(dataclasses.is_dataclass(config) for config in experiment.presets.values())


def test_nothing_else_names_a_lab():
    """The command line and the page iterate over the registry: but for the sweep, which `reproduce` and its figures
    are about, and the card, which is about plasticity, no module of theirs imports a lab."""
    labs = {path.parent.name for path in Path("bandit").glob("*/experiment.py")} - {"sweep"}
    assert len(labs) == 5
    texts = {path: path.read_text(encoding="utf-8") for path in Path("cokl_cli").rglob("*.py")}
    named = {(str(path), lab) for path, text in texts.items() for lab in labs if f"bandit.{lab}" in text}
    assert named == {("cokl_cli/card.py", "plasticity")}


def test_the_record_is_of_the_folders_that_count(toy, tmp_path):
    """The first result of several, its last environment and all its times; where results are pooled, of all."""
    first, second = tmp_path / "a", tmp_path / "b"
    for folder, n, cpus, seconds in ((first, 4, ("old", "new"), [1.5, 2.0]), (second, 5, ("other",), [4.5])):
        assert run("bandit", "toy-squares", "--n", n, "--out", folder) == 0
        machines = [
            {"cpu": cpu, "cpu_count": 2, "versions": {"torch": "9"}, "git_commit": f"commit of {cpu}"} for cpu in cpus
        ]
        (folder / "environment.json").write_text(json.dumps(machines))
        (folder / "seconds.json").write_text(json.dumps(seconds))
    record = logbook.records([first, second])["toy_squares"]
    assert record["command"] == "cokl bandit toy-squares --n 4"
    assert (record["hardware"], record["seconds"]) == ("new, 2 cores, torch 9", 3.5)
    assert record["commit"] == "commit of new"
    assert len(record["claims"]) == 1
    assert len(logbook.records([tmp_path])["toy_squares"]["claims"]) == 1
    toy.Toy.pools_folders = True
    pooled = logbook.records([tmp_path])["toy_squares"]
    assert pooled["command"] == "cokl bandit toy-squares --n 4; cokl bandit toy-squares --n 5"
    assert pooled["seconds"] == 8.0
    assert len(pooled["claims"]) == 2
    (second / "seconds.json").unlink()
    assert logbook.records([tmp_path])["toy_squares"]["seconds"] is None
