"""The command line as a user meets it: help, bad input in one line with exit code 2, and the whole of `reproduce`."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

from cokl_cli.app import main
from tests.bandit.conftest import tiny_flags
from tests.cokl_cli.test_bad_input import refusal

__all__ = ["tiny_flags"]


def cokl(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    """Run the console script in a process of its own."""
    return subprocess.run(
        [Path(sys.executable).with_name("cokl"), *arguments], capture_output=True, text=True, check=False, **options
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["bandit", "sweep", "--methods", "cokl,nonsense"], "unknown method 'nonsense'; known: none, cokl,"),
        (["bandit", "sweep", "--methods", "cokl,cokl"], "methods: expected different values"),
        (["bandit", "sweep", "--betas", "-0.1"], "betas: expected finite coefficients > 0, got -0.1"),
        (["bandit", "sweep", "--betas=nan"], "betas: expected finite numbers, got nan"),
        (["bandit", "sweep", "--seeds", "0"], "seeds: expected at least 1, got 0"),
        (["bandit", "sweep", "--jobs", "0"], "jobs: expected at least 1, got 0"),
        (["bandit", "sweep", "--correct-actions", "200"], "environment.correct_actions: expected 1 to 199, got 200"),
        (["bandit", "sweep", "--out", "/dev/null/results"], "cannot write to /dev/null/results"),
        (["report", "--results", "/nowhere"], "results: /nowhere is not a folder"),
        (["nonsense"], "unknown command nonsense; expected one of bandit, theory, llm, "),
        (["sweeep"], "(did you mean cokl bandit sweep?); expected one of bandit, "),
        (["thoery", "check"], "(did you mean cokl theory?)"),
        (["bandit", "swep"], "unknown command swep (did you mean cokl bandit sweep?); expected one of sweep, "),
        (["bandit"], "cokl bandit: expected one of sweep, "),
        (["bandit", "sweep", "methods"], "unknown argument methods (did you mean --methods?)"),
        (["bandit", "sweep", "--preset", "quik"], "--preset: expected one of paper, quick, got 'quik' (did you mean"),
        (["bandit", "sweep", "--jobs"], "--jobs: expected N after it"),
        (["bandit", "sweep", "--jobs", "x"], "--jobs N: no type matching"),
        (["theory", "optimum", "cokl", "--q", "0.1"], "missing: --beta"),
        (["theory", "optimum"], "missing: method, --q, --beta"),
        (["theory", "optimum", "cokl", "--q", "0.1", "--bata=1"], "unknown option --bata=1 (did you mean --beta?)"),
        (["theory", "chek"], "(did you mean cokl theory check?); expected one of check, optimum"),
        (["bandit", "sweep", "--beta", "1"], "unknown option --beta (did you mean --betas?)"),
        (["bandit", "sweep", "--methods", "cokl,forwardKL"], "unknown method 'forwardKL' (did you mean forward_kl?)"),
        (["theory", "optimum", "CoKL", "--q", "0.1", "--beta", "1"], "'CoKL' (did you mean cokl?); known: "),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(arguments, says, capsys):
    assert says in refusal(capsys, *arguments)


def test_no_option_of_another_command_is_suggested(capsys):
    assert refusal(capsys, "bandit", "card", "mine.py", "--beta", "1").endswith("unknown option --beta")


@pytest.mark.parametrize("arguments", ["bandit swep", "bandit sweep --preset quik", "bandit sweep --betas abc"])
def test_a_terminal_shows_the_same_line_as_a_pipe(arguments):
    piped = cokl(*arguments.split())
    assert piped.stderr.startswith("cokl: error: ")
    assert len(piped.stderr.splitlines()) == 1
    assert on_terminal(arguments, os.environ) == piped.stderr


@pytest.mark.parametrize("colours", [False, True])
def test_the_help_on_a_terminal_has_colours_unless_they_are_not_wanted(colours):
    without = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    shown = on_terminal("report --help", without if colours else {**without, "NO_COLOR": "1"})
    assert ("\x1b" in shown) == colours
    assert "--results" in shown


def on_terminal(arguments: str, environment: Mapping[str, str]) -> str:
    """What a command shows on a terminal of its own."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "cokl_cli", *arguments.split()]
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, env={**environment, "TERM": "xterm"}):
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # as Linux says that the other end is closed
            while piece := os.read(controller, 4096):
                shown += piece
    os.close(controller)
    return shown.decode().replace("\r\n", "\n")


def test_the_version_is_the_packages():
    assert cokl("--version").stdout == f"cokl {version('cokl')}\n"


def test_a_reader_that_leaves_early_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    command = [str(Path(sys.executable).with_name("cokl")), "bandit", "sweep", "--help"]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (result.returncode, result.stderr) == (128 + signal.SIGPIPE, b"")


def test_an_interrupted_command_does_not_take_its_libraries_down():
    """Which takes seconds; what is registered for the end of the process is done all the same."""
    script = """
import atexit, sys
from cokl_cli import app
from cokl_cli.commands import doctor

class Library:
    def __del__(self):
        print("taken down")

def interrupted(self):
    raise KeyboardInterrupt

atexit.register(print, "registered")
app.library = Library()
doctor.Doctor.run = interrupted
sys.argv = ["cokl", "doctor"]
app.main()
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (130, "registered\n")
    assert result.stderr.endswith("resume with: cokl doctor\n")


def test_another_configurations_folder_is_refused(tiny_flags, tmp_path):
    flags = ["--out", str(tmp_path), "--methods", "none", "--seeds", "1", "--jobs", "1"]
    assert cokl("bandit", "sweep", *tiny_flags, *flags).returncode == 0
    result = cokl("bandit", "sweep", *tiny_flags, *flags, "--learning-rate", "0.5")
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert "learning_rate: 0.0012 there, 0.5 asked for" in line


def test_reproduce_leaves_table_figures_and_verdicts(tiny_flags, tmp_path):
    """With three claims of the theory; all of them are checked one by one in tests/theory/test_claims.py."""
    folder = tmp_path / "results"
    script = """
import itertools, sys
import theory.claim, theory.claims
from cokl_cli.app import main

three = dict(itertools.islice(theory.claim.registered_claims().items(), 3))
theory.claim.registered_claims = lambda: three
main(sys.argv[1:])
"""
    betas = ["--betas", "0.01,0.1", "--methods", "none", "forward_kl", "cokl", "--seeds", "2", "--jobs", "1"]
    flags = ["reproduce", "--preset", "quick", *tiny_flags, *betas, "--out", str(folder)]
    result = subprocess.run([sys.executable, "-c", script, *flags], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "Claims of the paper:" in result.stdout
    assert "theory: 3 of 3 claims hold" in result.stdout
    assert (folder / "report.html").is_file()
    assert "## Claims" in (folder / "results.md").read_text()
    for name in ("figure1_constraint_scopes", "figure2_tradeoff", "figure3_dynamics"):
        assert (folder / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_csv_holds_the_same_table(tiny_flags, tmp_path):
    result = cokl("bandit", "sweep", *tiny_flags, "--methods", "none,cokl", "--betas", "0.1", "--seeds", "1", "--csv",
                  "--jobs", "1", "--out", str(tmp_path))  # fmt: skip
    assert result.returncode == 0, result.stderr
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "sweep-rows.csv"), pd.read_parquet(tmp_path / "sweep.parquet"))


@pytest.mark.parametrize("first", ["bandit", "theory", "llm", "reproduce", "--help"])
def test_a_command_starts_without_the_others(first):
    """Which is most of the time until help is on the screen."""
    script = f"""
import sys
from cokl_cli.app import application
application([{first!r}])
print(*(name for name in sys.modules if name.startswith("cokl_cli.commands.")))
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.rpartition(".")[2] for name in result.stdout.split()}
    needed = {
        "llm": {"llm", "llm_report"},
        "reproduce": {"reproduce", "bandit", "card", "report", "theory"},
        "bandit": {"bandit", "card"},
        "theory": {"theory"},
        "--help": set(),
    }
    assert loaded == needed[first]


@pytest.mark.parametrize("command", [[], ["bandit"]])
def test_the_help_loads_no_type_checker(command):
    """Which the parser takes for the check of a default value that is no class: a third of the time to the help."""
    script = f"""
import sys
from cokl_cli.app import main
try:
    main([*{command}, "--help"])
except SystemExit:
    print("typeguard" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "False"


COMMANDS = {
    "bandit": {"sweep", "robustness", "shift", "plasticity", "sequences", "finite-group", "card"},
    "theory": {"check", "optimum"},
    "llm": {"run", "prepare", "buffer", "evaluate", "report", "tables", "normalize"},
    "": {"bandit", "theory", "llm", "report", "logbook", "reproduce", "doctor"},
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


def test_all_commands_are_in_the_help_and_in_the_completion():
    listed = cokl("--help").stdout
    for name, options in {"bandit": "--backend", "theory": "--effort", "llm": "--paper-search"}.items():
        assert f"• {name} " in listed
        assert options in cokl("--tyro-print-completion", "bash").stdout


@pytest.mark.parametrize(
    "code",
    [
        "import cokl",
        "import bandit",
        "from cokl_cli.app import _parse; _parse(['llm', 'tables'])",
    ],
)
def test_start_up_loads_no_heavy_library(code):
    heavy = ("torch", "numpy", "pandas", "matplotlib", "scipy", "joblib", "verl", "ray")
    check = f"{code}\nimport sys\nprint([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
