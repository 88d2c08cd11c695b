"""`--quiet` and `--json`, `cokl` alone, `cokl doctor` and completion, as a person and as a program meet them."""

import json
import subprocess

import pytest

from cokl_cli.commands import doctor
from cokl_cli.output import Output
from tests.bandit.conftest import tiny_flags
from tests.cokl_cli.test_app import cokl

__all__ = ["tiny_flags"]


def test_json_is_all_of_standard_output(tiny_flags, tmp_path):
    flags = [
        *tiny_flags,
        "--methods",
        "none,cokl",
        "--betas",
        "0.1",
        "--seeds",
        "1",
        "--jobs",
        "1",
        "--out",
        str(tmp_path),
    ]
    swept = cokl("bandit", "sweep", *flags, "--json")
    assert swept.returncode == 0, swept.stderr
    found = json.loads(swept.stdout)
    assert found["folder"] == str(tmp_path)
    assert found["claims"]
    assert {claim["verdict"] for claim in found["claims"]} == {None}  # one seed
    assert [row["method"] for row in found["rows"]] == ["No regularizer", "CoKL"]
    assert "results.md" in swept.stderr


def test_quiet_prints_nothing_but_errors(tiny_flags, tmp_path):
    flags = [*tiny_flags, "--methods", "none", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path), "--quiet"]
    result = cokl("bandit", "sweep", *flags)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert (tmp_path / "sweep.parquet").is_file()
    refused = cokl("report", "--results", str(tmp_path / "nowhere"), "--quiet")
    assert refused.returncode == 2
    assert refused.stderr.startswith("cokl: error: ")


def test_every_command_that_prints_results_has_both_options():
    from cokl_cli.commands import bandit, llm, logbook, report, reproduce, theory

    commands = [
        value
        for module in (bandit, doctor, llm, logbook, report, reproduce, theory)
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "run")
    ]
    assert len(commands) > 12
    assert [command.__name__ for command in commands if not issubclass(command, Output)] == []
    assert [command.__name__ for command in commands if getattr(command, "outcome") is Output.outcome] == []  # noqa: B009


def test_doctor_says_what_is_missing_and_how_to_get_it(monkeypatch, capsys):
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("cvxpy", "torch") else real(name))
    assert doctor.Doctor().run() == 1  # nothing works without PyTorch
    lines = capsys.readouterr().out.splitlines()
    (core,) = [i for i, line in enumerate(lines) if line.split()[:2] == ["missing", "core"]]
    assert lines[core + 2].split() == ["for", "torch"]
    (theory,) = [i for i, line in enumerate(lines) if line.split()[:2] == ["missing", "theory"]]
    assert 'pip install ".[theory]"' in lines[theory + 1]
    assert lines[theory + 2].split() == ["for", "cvxpy"]


def test_doctor_knows_every_extra():
    from importlib.metadata import metadata

    assert set(metadata("cokl").get_all("Provides-Extra") or []) == set(doctor.PARTS) - {""}


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_is_a_script_of_the_shell(shell):
    result = cokl("--tyro-print-completion", shell)
    assert result.returncode == 0
    assert "correct-mass" in result.stdout
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=result.stdout, text=True, check=True)
