"""The commands: lists, exit codes, files, and one line for bad input."""

import json

import pytest

from cokl.support.errors import InputError
from cokl_cli.commands.theory import Check, Optimum
from theory.claim import Evidence, Statement, registered_claims


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
    assert "full-kl-strict-concavity" in (tmp_path / "claims.md").read_text()


def test_a_failing_claim_ends_with_exit_code_1(tmp_path, monkeypatch, capsys):
    false = Statement("false", "1 = 2", "nowhere", lambda formulas, effort: [Evidence("arithmetic", "all", 1.0, 0.0)])
    monkeypatch.setattr("theory.claim._claims", {"false": false})
    assert Check(out=tmp_path).run() == 1
    assert "not held  nowhere, false: not held by arithmetic" in capsys.readouterr().out


def test_unknown_claim_is_named(tmp_path):
    with pytest.raises(InputError, match="only: unknown claim 'no-such'"):
        Check(only=("no-such",), out=tmp_path).run()


def test_optimum_prints_the_same_numbers_as_json(capsys):
    optimum = Optimum("forward_kl", "0.1", "0.3", digits=12)
    assert optimum.run() == 0
    text = capsys.readouterr().out
    numbers = json.loads(json.dumps(optimum.outcome()))
    assert numbers["certified"]
    for name in ("mass", "gap", "above_reference"):
        assert numbers[name] in text
