"""A lab of another package, and what every lab of this one has."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from bandit import labs
from bandit.lab import Analysis, Lab
from cokl.support.files import write_parquet
from cokl.support.results import Execution
from cokl.support.verdicts import Claim, Evidence
from cokl_cli.app import main
from cokl_cli.report.results import finished
from tests.bandit.conftest import TINY_FLAGS


@dataclasses.dataclass(frozen=True)
class Squares:
    """Numbers.

    n: how many squares. start: the first number.
    """

    n: int = 3
    start: int = 0

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def train(config: Squares, execution: Execution) -> dict[str, pd.DataFrame]:
    with execution.results_folder(config.as_dict()) as folder:
        if not (folder / "squares.parquet").exists():
            numbers = range(config.start, config.start + config.n)
            write_parquet(pd.DataFrame({"the_square": [number**2 for number in numbers]}), folder / "squares.parquet")
        return {"squares": pd.read_parquet(folder / "squares.parquet")}


def analyse(tables, config: Squares) -> Analysis:
    claim = Claim(
        "grow", "Squares grow", "beyond", "nowhere", Evidence("", f"{len(tables['squares'])} squares"), "held"
    )
    answer = "The squares grow"
    captions = {"squares": "Every square, as in Eq. 1. Nothing else."}
    titles = {"squares": "Every square, as in Eq. 1"}
    return Analysis(answer, 4, [claim], tables, captions, lambda rows: rows, tables["squares"], titles=titles)


LAB = Lab("Squares", "Square a few numbers. Resumes.", {"paper": Squares(), "quick": Squares(2)},
          {"squares": ["the_square"]}, train, analyse, lambda analysis: {})  # fmt: skip


def test_two_claims_of_one_name_are_a_defect_of_the_lab():
    """The logbook knows them by their names."""
    made = analyse({"squares": pd.DataFrame({"the_square": [0]})}, Squares())
    with pytest.raises(ValueError, match="expected a name for each, got 'grow' for two"):
        dataclasses.replace(made, claims=[*made.claims, *made.claims])


def enter(monkeypatch, name: str, lab: object) -> None:
    """As an installed package's entry point does."""
    entry = SimpleNamespace(name=name, load=lambda: lab)
    monkeypatch.setattr(labs, "entry_points", lambda group: [entry] if group == "cokl.labs" else [])
    labs.labs.cache_clear()


@pytest.fixture
def squares(monkeypatch):
    enter(monkeypatch, "squares", LAB)
    yield
    monkeypatch.undo()
    labs.labs.cache_clear()


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(str(ended.value.code))


def test_another_packages_lab_has_all_that_a_lab_has(squares, tmp_path: Path, capsys):
    assert run("bandit", "--help") == 0
    assert "squares" in capsys.readouterr().out
    assert run("bandit", "squares", "--help") == 0
    assert "--start" in capsys.readouterr().out
    folder = tmp_path / "runs" / "mine"
    command = ("bandit", "squares", "--preset", "quick", "--n", 5, "--out", folder)
    assert run(*command) == 0
    assert "The squares grow.\n" in capsys.readouterr().out
    before = (folder / "squares.parquet").stat().st_mtime_ns
    assert run(*command) == 0
    assert (folder / "squares.parquet").stat().st_mtime_ns == before
    assert finished(tmp_path / "runs") == {"squares": [folder]}

    assert run("report", "--results", tmp_path / "runs") == 0
    page = (tmp_path / "runs" / "report.html").read_text(encoding="utf-8")
    assert '<section id="squares"><h2>Squares</h2>' in page
    assert "<summary>Every square, as in Eq. 1</summary>" in page
    assert '<th scope="col">the square</th>' in page
    assert run("logbook", tmp_path / "runs", "--out", tmp_path) == 0
    record = json.loads((tmp_path / "REPRODUCTION.json").read_text())["squares"]
    assert record["claims"] == [
        {"name": "grow", "statement": "Squares grow", "origin": "beyond", "where": "nowhere", "verdict": "held",
         "measured": [{"kind": "", "text": "5 squares", "part": ""}]}
    ]  # fmt: skip
    assert record["command"] == "cokl bandit squares --n 5"


OWN = """
from dataclasses import replace
from tests.cokl_cli import test_labs
def train(config, execution):
    return test_labs.train(config, execution)
LAB = replace(test_labs.LAB, train=train)
"""


def test_results_of_a_lab_whose_code_has_changed_are_refused_and_kept(tmp_path: Path, monkeypatch, capsys):
    """The same code resumes."""
    path, folder = tmp_path / "own_lab.py", tmp_path / "out"
    path.write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    enter(monkeypatch, "squares", importlib.import_module("own_lab").LAB)
    command = ("bandit", "squares", "--out", folder)
    try:
        assert [run(*command), run(*command)] == [0, 0]
        made = (folder / "squares.parquet").read_bytes()
        path.write_text(OWN.replace("(config, execution)\nLAB", "(replace(config, start=1), execution)\nLAB"))
        assert run(*command) == 2
    finally:
        del sys.modules["own_lab"]
        monkeypatch.undo()
        labs.labs.cache_clear()
    assert "code.lab Squares.own_lab: " in capsys.readouterr().err
    assert (folder / "squares.parquet").read_bytes() == made


def test_a_results_config_json_with_the_code_of_a_plug_in_is_read_as_settings(squares, tmp_path: Path):
    stored = {"n": 4, "start": 0, "code": {"mine": {"my_regularizers": "0123456789ab"}}, "device": "cpu"}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    command = ("bandit", "squares", "--config", tmp_path / "config.json", "--out", tmp_path / "out")
    assert run(*command) == 0
    assert len(pd.read_parquet(tmp_path / "out" / "squares.parquet")) == 4


def test_a_folder_resumes_under_any_name_of_its_methods(tmp_path: Path, capsys):
    folder = tmp_path / "sweep"

    def sweep(methods: str) -> tuple[int, dict[str, bytes]]:
        size = ["--seeds", "1", "--betas", "0.1", "--jobs", "1", "--out", folder]
        code = run("bandit", "sweep", "--preset", "quick", *TINY_FLAGS, *size, "--methods", methods)
        made = [*folder.glob("*.json"), *folder.rglob("*.parquet"), *folder.rglob("*.csv"), *folder.rglob("*.md")]
        return code, {path.name: path.read_bytes() for path in made if path.name != "environment.json"}

    first, before = sweep("none,replay")
    assert json.loads(before["config.json"])["methods"] == ["none", "correct_forward_kl"]
    assert set(pd.read_parquet(folder / "sweep.parquet")["method"]) == {"reference", "none", "correct_forward_kl"}
    capsys.readouterr()
    again, after = sweep("No-regularizer,correct_forward_kl")
    assert (first, again, "runs:" in capsys.readouterr().err) == (0, 0, False)
    assert after == before
