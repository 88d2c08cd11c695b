"""The commands: lists, exit codes, files, and one line for bad input."""

import dataclasses
import json
import subprocess
import sys
import time

import pandas as pd
import pytest

import theory.claims  # registers them
import theory.formulas
from cokl.support.errors import InputError
from cokl_cli.commands.theory import Check, Optimum
from theory.claim import Evidence, Statement, registered_claims
from theory.report import check_and_save


def test_list_names_every_claim(capsys):
    assert Check(list=True).run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(registered_claims())


def test_check_writes_the_table_and_prints_it_last(tmp_path, capsys):
    names = ("cokl-definition,cokl-gradient", "full-kl-strict-concavity")
    check = Check(only=names, out=tmp_path)
    assert check.run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert "3 of 3 claims hold" in lines[-1]
    assert lines[0] == f"evidence of every claim: {tmp_path / 'claims.md'}"
    assert max(map(len, lines[1:])) <= 100
    table = json.loads((tmp_path / "claims.json").read_text())
    assert [row["claim"] for row in table] == ["cokl-definition", "cokl-gradient", "full-kl-strict-concavity"]
    assert check.outcome() == table
    assert not (tmp_path / "chunks").exists()
    assert "full-kl-strict-concavity" in (tmp_path / "claims.md").read_text()


def test_a_failing_claim_ends_with_exit_code_1(tmp_path, monkeypatch, capsys):
    false = Statement("false", "1 = 2", "nowhere", lambda formulas, effort: [Evidence("arithmetic", "all", 1.0, 0.0)])
    monkeypatch.setattr("theory.claim._claims", {"false": false})
    assert Check(out=tmp_path).run() == 1
    assert "not held  nowhere, false: not held by arithmetic" in capsys.readouterr().out


@pytest.mark.nightly
def test_a_killed_check_resumes_where_it_was(tmp_path):
    """SIGKILL after the first claim: what it measured is read, not measured again; the rest is as if uninterrupted."""
    names = ["cokl-definition", "cokl-gradient", "full-kl-strict-concavity"]
    command = [sys.executable, "-m", "cokl_cli", "theory", "check", "--only", ",".join(names), "--out"]
    process = subprocess.Popen([*command, str(tmp_path / "killed")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while not (saved := sorted((tmp_path / "killed" / "chunks").glob("*/cokl-definition.parquet"))):
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.wait()
    seconds = pd.read_parquet(saved[0])["seconds"].iloc[0]
    tables = {}
    for folder in ("killed", "whole"):
        subprocess.run([*command, str(tmp_path / folder)], check=True, capture_output=True)
        tables[folder] = json.loads((tmp_path / folder / "claims.json").read_text())
        assert not (tmp_path / folder / "chunks").exists()
    assert tables["killed"][0]["seconds"] == round(seconds, 3)
    for row in [*tables["killed"], *tables["whole"]]:
        del row["seconds"]
    assert tables["killed"] == tables["whole"]


def test_a_check_of_other_claims_leaves_what_an_interrupted_one_has_done(tmp_path, monkeypatch):
    def interrupted(formulas, effort):
        raise KeyboardInterrupt

    known = registered_claims()
    stopping = dataclasses.replace(known["cokl-gradient"], check=interrupted)
    monkeypatch.setattr("theory.claim._claims", {**known, "cokl-gradient": stopping})
    with pytest.raises(KeyboardInterrupt):
        check_and_save(("cokl-definition", "cokl-gradient"), "full", tmp_path)
    check_and_save(("full-kl-strict-concavity",), "quick", tmp_path)
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "effort": "quick",
        "only": ["full-kl-strict-concavity"],
    }
    assert [path.stem for path in (tmp_path / "chunks").glob("*/*.parquet")] == ["cokl-definition"]


def test_unknown_claim_is_named(tmp_path):
    with pytest.raises(InputError, match="only: unknown claim 'no-such'"):
        Check(only=("no-such",), out=tmp_path).run()


def test_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a part of its path is not a folder; choose another"):
        Check(only=("cokl-definition",), out=tmp_path / "file").run()


def test_optimum_prints_the_same_numbers_as_json(capsys):
    optimum = Optimum("forward_kl", "0.1", "0.3", digits=12)
    assert optimum.run() == 0
    text = capsys.readouterr().out
    numbers = json.loads(json.dumps(optimum.outcome()))
    assert numbers["certified"]
    for name in ("mass", "gap", "above_reference"):
        assert numbers[name] in text


def test_formulas_are_replaceable_one_by_one():
    names = set(vars(theory.formulas.Formulas()))
    assert {"forward_kl_optimum", "recovery", "regularizers"} <= names
