"""The commands: lists, exit codes, files, and one line for bad input."""

import dataclasses
import json
import math

import pytest

from cokl.support.errors import InputError
from cokl_cli.app import main
from cokl_cli.commands.theory import Check, Optimum
from theory.claim import Evidence, Statement
from theory.claims import registered_claims


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
    assert "full-kl-strict-concavity" in (tmp_path / "claims.md").read_text()


def test_a_failing_claim_ends_with_exit_code_1(tmp_path, monkeypatch, capsys):
    """Also where another one holds."""
    true = Statement(
        "true", "1 = 1", "nowhere", "paper", "nowhere", lambda effort: [Evidence("arithmetic", "all", 0.0, 0.0)]
    )
    false = Statement(
        "false", "1 = 2", "nowhere", "paper", "nowhere", lambda effort: [Evidence("arithmetic", "all", 1.0, 0.0)]
    )
    monkeypatch.setattr("theory.claims.registered_claims", lambda: {"true": true, "false": false})
    assert Check(out=tmp_path).run() == 1
    assert "not held  nowhere, false: not held by arithmetic" in capsys.readouterr().out


def test_unknown_claim_is_named(tmp_path):
    with pytest.raises(InputError, match="only: unknown claim 'no-such'"):
        Check(only=("no-such",), out=tmp_path).run()


def test_the_optimum_of_theorem_2_is_printed_with_its_certificate(capsys):
    assert Optimum("forward_kl", "0.1", "0.3", digits=12).run() == 0
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines()[1:4])
    mass = (0.7 + math.sqrt(0.49 + 0.12)) / 2
    for name, value in (("Z*", mass), ("1 - Z*", 1 - mass), ("Z* - q", mass - 0.1)):
        assert float(lines[name]) == pytest.approx(value, abs=1e-11)


OPTIONS = {
    "check": {
        "only": (["--only", "cokl-definition"], ["--only", "cokl-definition,cokl-gradient"]),
        "effort": (["--effort", "quick"], ["--effort", "full"]),
        "list": ([], ["--list"]),
        "out": (["--out", "a"], ["--out", "b"]),
        "json": ([], ["--json"]),
    },
    "optimum": {
        "method": (["forward_kl"], ["reverse_kl"]),
        "q": (["--q", "0.1"], ["--q", "0.2"]),
        "beta": (["--beta", "0.3"], ["--beta", "0.4"]),
        "digits": (["--digits", "5"], ["--digits", "6"]),
        "correct_fraction": (["--correct-fraction", "0.1"], ["--correct-fraction", "0.2"]),
        "json": ([], ["--json"]),
    },
}
NEEDED = {"only": ["cokl-definition"], "effort": ["quick"], "out": ["theory"], "q": ["0.1"], "beta": ["0.3"]}
"""What a command is given where another of its options is looked at."""


def test_no_option_of_the_theory_is_left_out():
    for name, command in (("check", Check), ("optimum", Optimum)):
        assert {field.name for field in dataclasses.fields(command)} == set(OPTIONS[name])


@pytest.mark.parametrize(("command", "option"), [(name, option) for name in OPTIONS for option in OPTIONS[name]])
def test_another_value_of_an_option_gives_another_result(command, option, tmp_path, monkeypatch, capsys):
    """On the screen, in the claims with their domains, or in which folder there is."""
    said = []
    for place, flags in enumerate(OPTIONS[command][option]):
        folder = tmp_path / str(place)
        folder.mkdir()
        monkeypatch.chdir(folder)
        others = [word for name in OPTIONS[command] if name != option and name in NEEDED
                  for word in (f"--{name}", *NEEDED[name])]  # fmt: skip
        method = ["entropy" if option == "correct_fraction" else "forward_kl"] * (command == "optimum")
        with pytest.raises(SystemExit) as ended:
            main(["theory", command, *(flags if option == "method" else [*method, *flags]), *others])
        assert ended.value.code == 0
        claims = {
            path.relative_to(folder).as_posix(): [
                (row["claim"], [piece["domain"] for piece in row["evidence"]]) for row in json.loads(path.read_text())
            ]
            for path in folder.rglob("claims.json")
        }
        said.append((capsys.readouterr().out.partition("claims hold")[0], claims))
    assert said[0] != said[1]
    if option == "effort":
        counts = [claims["theory/claims.json"][0][1][0] for _, claims in said]
        assert counts == ["24 random pairs", "400 random pairs"]


def test_the_optimum_as_json_is_one_object_with_every_digit(capsys):
    assert Optimum("reverse_kl", "0.1", "0.001", digits=30, json=True).run() == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["method", "q", "beta", "mass", "gap", "above_reference", "certified", "certificate"]
    assert (told["method"], told["q"], told["beta"], told["certified"]) == ("reverse_kl", "0.1", "0.001", True)
    gap = 9 * math.exp(-1000)  # of odds (1 - q) / q exp(-1 / beta): 1 - Z* to first order in itself
    assert float(told["gap"]) == pytest.approx(gap, rel=1e-12)
    assert len(told["gap"].partition("e")[0]) > 25
    assert Optimum("replay", "0.1", "0.5", json=True).run() == 0
    assert json.loads(capsys.readouterr().out)["method"] == "correct_forward_kl"


def test_a_check_as_json_is_what_its_file_holds(tmp_path, capsys):
    assert Check(only=("cokl-definition,cokl-gradient",), effort="quick", out=tmp_path, json=True).run() == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "claims.json").read_text())
    assert [(row["claim"], row["holds"]) for row in printed] == [("cokl-definition", True), ("cokl-gradient", True)]


def test_the_list_of_claims_as_json_says_what_the_list_says(capsys):
    assert Check(list=True).run() == Check(list=True, json=True).run() == 0
    text, _, told = capsys.readouterr().out.partition("\n[")
    lines = [line.strip() for line in text.splitlines()]
    claims = [(claim["claim"], claim["statement"], claim["source"]) for claim in json.loads(f"[{told}")]
    assert claims == list(zip(lines[::3], lines[1::3], lines[2::3], strict=True))
    assert len(claims) > 50
