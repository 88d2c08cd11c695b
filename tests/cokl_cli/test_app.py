"""The command line as a user meets it: help, bad input in one line with exit code 2, and the whole of `reproduce`."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import pytest

from cokl_cli.app import main
from cokl_cli.commands.llm import Preset
from llm_bridge.experiment.config import PRESETS
from tests.bandit.conftest import tiny_flags

__all__ = ["tiny_flags"]


def cokl(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    """Run the console script in a process of its own."""
    return subprocess.run(
        [Path(sys.executable).with_name("cokl"), *arguments], capture_output=True, text=True, check=False, **options
    )


@pytest.mark.parametrize("arguments", ["bandit swep", "bandit sweep --preset quik", "bandit sweep --betas abc"])
def test_a_terminal_shows_the_same_line_as_a_pipe(arguments):
    command = [Path(sys.executable).with_name("cokl"), *arguments.split()]
    piped = cokl(*arguments.split()).stderr
    assert piped.startswith("cokl: error: ")
    assert len(piped.splitlines()) == 1
    controller, terminal = pty.openpty()
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, env={**os.environ, "TERM": "xterm"}):
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # as Linux says that the other end is closed
            while piece := os.read(controller, 4096):
                shown += piece
    os.close(controller)
    assert shown.decode().replace("\r\n", "\n") == piped


def test_the_version_is_the_packages():
    assert cokl("--version").stdout == f"cokl {version('cokl')}\n"


def test_a_reader_that_leaves_early_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    command = [str(Path(sys.executable).with_name("cokl")), "bandit", "sweep", "--help"]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (result.returncode, result.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize(("preset", "samples", "false"), [("quick", 24, 0), ("paper", 400, 1)])
def test_reproduce_leaves_table_figures_and_verdicts_and_says_whether_the_theory_holds(
    preset, samples, false, tiny_flags, tmp_path
):
    """With three claims of the theory, or with a false one beside them; every claim is checked in tests/theory."""
    folder = tmp_path / "results"
    script = f"""
import sys
import theory.claims
from cokl_cli.app import main
from theory.claim import Evidence, Statement

every = theory.claims.registered_claims()
three = {{name: every[name] for name in ("cokl-definition", "replay-identity", "cokl-gradient")}}
if {false}:
    wrong = Evidence("arithmetic", "all", 1.0, 0.0)
    three["false"] = Statement("false", "1 = 2", "nowhere", "paper", "nowhere", lambda *_: [wrong])
theory.claims.registered_claims = lambda: three
main(sys.argv[1:])
"""
    betas = ["--betas", "0.01,0.1", "--methods", "none", "forward_kl", "cokl", "--seeds", "2", "--jobs", "1"]
    flags = ["reproduce", "--preset", preset, *tiny_flags, *betas, "--out", str(folder)]
    result = subprocess.run([sys.executable, "-c", script, *flags], capture_output=True, text=True, check=False)
    assert result.returncode == false, result.stderr
    assert "-          Unregularized RL becomes correct" in result.stdout  # no verdict: two seeds
    assert f"theory: 3 of {3 + false} claims hold" in result.stdout
    assert ("not held  nowhere, false: not held by arithmetic" in result.stdout) == bool(false)
    checked = json.loads((folder / "theory" / "claims.json").read_text())
    assert checked[0]["evidence"][0]["domain"] == f"{samples} random pairs"
    assert (folder / "report.html").is_file()
    assert "## Claims" in (folder / "results.md").read_text()
    matched = (folder / "matched.csv").read_text().splitlines()[1:]
    assert [row.partition(",")[0] for row in matched] == ["No regularizer", "Forward KL", "CoKL", "Replay"]
    assert '"correct_forward_kl":{"label":"Replay"' in (folder / "report.html").read_text()
    for name in ("figure1_constraint_scopes", "figure2_tradeoff", "figure3_dynamics"):
        assert (folder / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


COMMANDS = {
    "bandit": {"sweep", "robustness", "shift", "plasticity", "sequences", "finite-group", "card"},
    "theory": {"check", "optimum"},
    "llm": {"run", "prepare", "buffer", "report", "rollouts"},
    "": {"bandit", "demo", "theory", "llm", "report", "logbook", "reproduce"},
}  # fmt: skip


@pytest.mark.parametrize(("group", "name"), sorted((group, name) for group in COMMANDS for name in COMMANDS[group]))
def test_every_command_has_help(group, name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*group.split(), name, "--help"])
    assert not ended.value.code
    assert f"usage: {' '.join(['cokl', *group.split(), name])} " in capsys.readouterr().out


@pytest.mark.parametrize("group", COMMANDS)
def test_no_command_is_left_out_of_that_test(group):
    assert set(re.findall(r"• ([a-z-]+) ", cokl(*group.split(), "--help").stdout)) == COMMANDS[group]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_is_a_script_of_the_shell(shell):
    result = cokl("--tyro-print-completion", shell)
    assert result.returncode == 0
    assert "correct-fraction" in result.stdout
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=result.stdout, text=True, check=True)


@pytest.mark.parametrize(
    "code",
    [
        "import cokl",
        "import bandit",
        "from cokl_cli.app import _parse; _parse(['llm', 'report'])",
    ],
)
def test_start_up_loads_no_heavy_library(code):
    heavy = ("torch", "numpy", "pandas", "matplotlib", "scipy", "joblib", "verl", "ray")
    check = f"{code}\nimport sys\nprint([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_preset_of_the_llm_experiment_can_be_typed():
    assert get_args(Preset) == tuple(PRESETS)
