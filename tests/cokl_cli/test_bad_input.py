"""What once ended in a traceback, in a silent wrong number or never: one line and exit code 2."""

import os
import subprocess
import sys

import pytest

from cokl_cli.app import main
from llm_bridge.experiment.config import PRESETS

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
        ("bandit sweep --methods cokl,nonsense", "unknown method 'nonsense' (did you mean none?); known: none, cokl,"),
        ("bandit sweep --methods cokl,forwardKL", "unknown method 'forwardKL' (did you mean forward_kl?); known: "),
        ("bandit sweep --methods none,repaly", "unknown method 'repaly' (did you mean replay?); known: "),
        ("bandit sweep --methods qqq", "unknown method 'qqq'; known: "),
        ("bandit shift --kl-sweep-methods cokk", "unknown method 'cokk' (did you mean cokl?)"),
        ("bandit sweep --methods replay,correct_forward_kl", "methods: expected different values, got correct_for"),
        ("bandit card my_regularzer.py", "cannot read my_regularzer.py: No such file or directory (did you mean my_r"),
        ("bandit sweep --config quikc.json", "No such file or directory (did you mean quick.json?)"),
        ("theory check --only cokl-gradeint", "unknown claim 'cokl-gradeint' (did you mean cokl-gradient?); "),
        ("llm run --preset qwen3-1.7", f"--preset: expected one of {', '.join(PRESETS)}, got"),
        ("bandit sweep --betas -0.1", "betas: expected finite coefficients > 0, got -0.1"),
        ("bandit sweep --seeds 0", "seeds: expected at least 1, got 0"),
        ("bandit sweep --jobs 0", "jobs: expected 1 to 10000, got 0"),
        ("bandit sweep --correct-actions 200", "environment.correct_actions: expected 1 to 199, got 200"),
        (
            "bandit sweep --out /dev/null/results",
            "cannot use /dev/null/results: Not a directory; choose another",
        ),
        ("bandit sweep --out " + "a" * 300, "File name too long; choose another folder"),
        ("bandit sweep --jobs " + HUGE, "jobs: expected 1 to 10000, got"),
        ("bandit shift --seeds " + HUGE, "seeds: expected at most"),
        ("bandit sequences --steps " + HUGE, "steps: expected at most"),
        ("bandit finite-group --methods none", "methods: expected one that the reference groups can estimate"),
        ("bandit swep", "unknown swep (did you mean sweep?); `cokl bandit --help` lists what there is"),
        ("bandit sweep --preset quik", "--preset: expected one of paper, quick, got 'quik' (did you mean quick?)"),
        ("bandit sweep --jobs", "--jobs: expected N after it"),
        ("report --results /nowhere", "results: /nowhere is not a folder"),
        ("nonsense", "unknown nonsense; `cokl --help` lists what there is"),
        ("theory optimum cokl --q 0.1", "missing: --beta"),
        ("theory optimum cokl --q 0.1 --bata=1", "unknown --bata=1 (did you mean --beta?);"),
        ("theory optimum Cokl-KL --q 0.1 --beta 1", "'Cokl-KL' (did you mean cokl?); known: "),
    ],
)
def test_bad_input_is_one_line(arguments, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("my_regularizer.py", "quick.json"):
        (tmp_path / name).touch()
    assert says in refusal(capsys, *arguments.split())


@pytest.mark.parametrize(
    ("package", "extra", "loaded", "command"),
    [
        ("flint", "theory", "theory", "theory check"),
        ("flint", "theory", "theory", "theory optimum forward_kl --q 0.1 --beta 0.05"),
        ("latex2mathml", "report", "cokl_cli.report", "report"),
    ],
)
def test_what_needs_a_package_that_is_not_there_says_so(package, extra, loaded, command, monkeypatch, tmp_path, capsys):
    for name in [name for name in sys.modules if f"{name}.".startswith((f"{loaded}.", f"{package}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # an import of it fails
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f'cokl: error: {package} is not installed; install it with pip install "cokl[{extra}]"'


def test_what_pytorch_has_no_memory_for(tmp_path, monkeypatch, capsys):
    """PyTorch raises a RuntimeError of its own."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["bandit", "sweep", "--preset", "quick", "--jobs", "1", "--hidden", "100000000", "100000000"])
    assert ended.value.code == 2
    assert "cokl: error: not enough memory for this configuration; " in capsys.readouterr().err.splitlines()[-1]


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
    command = [sys.executable, "-m", "cokl_cli", "theory", "optimum", "forward_kl", "--q", "0.1", "--beta", "0.05"]
    with open("/dev/full", "wb") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("cokl: error: No space left on device")
