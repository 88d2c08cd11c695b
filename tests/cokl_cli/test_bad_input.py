"""What once ended in a traceback, in a silent wrong number or never: one line and exit code 2."""

import os
import subprocess
import sys

import pytest

from cokl_cli.app import main

HUGE = str(10**30)


def refusal(capsys, *arguments: str) -> str:
    """The one line that a command ends with; exit code 2, and nothing that it has printed."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    printed, errors = capsys.readouterr()
    assert (ended.value.code, printed) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith("cokl: error: ")
    return line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("bandit sweep --jobs " + HUGE, "jobs: expected 1 to 10000, got"),
        ("bandit sweep --seeds " + HUGE, "seeds: expected at most"),
        ("bandit shift --seeds " + HUGE, "seeds: expected at most"),
        ("bandit shift --steps " + HUGE, "steps: expected at most"),
        ("bandit sequences --steps " + HUGE, "steps: expected at most"),
        ("bandit finite-group --methods none", "methods: expected one that the reference groups can estimate"),
        ("bandit sweep --out " + "a" * 300, "File name too long; choose another folder"),
    ],
)
def test_one_line(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert says in refusal(capsys, *arguments.split())


@pytest.mark.parametrize(
    ("package", "loaded", "command"),
    [
        ("flint", "theory", "theory check"),
        ("flint", "theory", "theory optimum forward_kl --q 0.1 --beta 0.05"),
    ],
)
def test_what_needs_a_package_that_is_not_there_says_so(package, loaded, command, monkeypatch, tmp_path, capsys):
    for name in [name for name in sys.modules if name == loaded or name.startswith(f"{loaded}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # an import of it fails
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"cokl: error: {package} is not installed; `make setup` or `make llm-setup` installs it"


def test_a_folder_that_may_not_be_entered(tmp_path):
    private = tmp_path / "private"
    private.mkdir()
    private.chmod(0)
    # The superuser enters every folder, unless that capability is dropped.
    dropped = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    line = [*dropped, sys.executable, "-m", "cokl_cli", "report", "--results", "private/x"]
    result = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    (said,) = result.stderr.splitlines()
    assert "ermission denied" in said


def test_a_full_disk_behind_standard_output():
    command = [sys.executable, "-m", "cokl_cli", "llm", "tables"]
    with open("/dev/full", "wb") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("cokl: error: No space left on device")
