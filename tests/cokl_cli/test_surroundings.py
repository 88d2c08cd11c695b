"""A command among what its user's machine has around it: streams, signals, a terminal, variables, files, locks.

Each row is a surrounding, a command, and how it ends. `TRAIN` is the smallest sweep, `PRINT` computes one number.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import platform
import pty
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from matplotlib import get_cachedir

from tests.bandit.conftest import TINY_FLAGS

TRAIN = ("bandit", "sweep", *TINY_FLAGS, "--methods=none", "--seeds=1", "--jobs=1", "--out", "made")
PRINT = ("theory", "optimum", "forward_kl", "--q", "0.1", "--beta", "0.05")
MADE = ("made/sweep.parquet", "made/figures/figure2_tradeoff.pdf")
RECORD = {"command": "c", "scope": "s", "hardware": "h", "seconds": 1, "commit": None, "claims": []}
RESTORE = "restore that file from a copy, or take another folder and remove this one"
HANGS = 240
"""Seconds after which a command is taken to have no end."""


@dataclass(frozen=True)
class Surroundings:
    """What is around a command.

    closed: standard streams, by number. full: those on a full disk. terminal: a pseudo-terminal that does not know its
    size stands behind the streams. hang_up: sent as soon as the folder "made" is held. ignored: signals that the parent
    ignores. flock: the error that the kernel answers to every flock. variables: of the environment, without those whose
    value is None. files: text, or None for a folder, by path.
    """

    closed: tuple[int, ...] = ()
    full: tuple[int, ...] = ()
    terminal: bool = False
    hang_up: bool = False
    ignored: tuple[int, ...] = ()
    flock: int = 0
    variables: Mapping[str, str | None] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, what it said, and the folder that it ran in."""

    code: int
    printed: str
    said: str
    folder: Path


def run(arguments: tuple[str, ...], around: Surroundings, folder: Path) -> Ended:
    """The console script in a process of its own. Raises TimeoutExpired for a command without an end."""
    for name, text in around.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    given = {"COLUMNS": None, "LINES": None, **around.variables}
    environment = {name: value for name, value in {**os.environ, **given}.items() if value is not None}

    def enter() -> None:
        for ending in (signal.SIGHUP, signal.SIGTERM):
            signal.signal(ending, signal.SIG_IGN if ending in around.ignored else signal.SIG_DFL)
        for number in around.full:
            os.dup2(os.open("/dev/full", os.O_WRONLY), number)
        for number in around.closed:
            os.close(number)
        if around.flock:
            answer_flock(around.flock)

    controller, ours = pty.openpty() if around.terminal else (-1, subprocess.PIPE)
    process = subprocess.Popen(
        [Path(sys.executable).with_name("cokl"), *arguments], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=ours, stderr=ours, preexec_fn=enter,  # noqa: PLW1509  this process has one thread
    )  # fmt: skip
    try:
        if around.hang_up:
            while process.poll() is None and not (folder / "made" / "environment.json").exists():
                time.sleep(0.02)
            process.send_signal(signal.SIGHUP)
        if not around.terminal:
            printed, said = process.communicate(timeout=HANGS)
        else:
            os.close(ours)
            printed = said = read_all(controller)
            process.wait(HANGS)
    finally:
        process.kill()
    return Ended(process.returncode, printed.decode(), said.decode(), folder)


def read_all(controller: int) -> bytes:
    """What a terminal shows until its last program has ended."""
    shown = b""
    with contextlib.suppress(OSError):  # as Linux says that the other end is closed
        while piece := os.read(controller, 4096):
            shown += piece
    os.close(controller)
    return shown


def answer_flock(error: int) -> None:
    """Have the kernel refuse flock to this process, as file systems do that have none: a filter of system calls."""
    call = {"x86_64": 73, "aarch64": 32}[platform.machine()]
    load, equal, give, allow, refuse = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000 | error
    steps = [(load, 0, 0, 0), (equal, 0, 1, call), (give, 0, 0, refuse), (give, 0, 0, allow)]
    program = b"".join(struct.pack("HBBI", *step) for step in steps)
    code = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    kernel = ctypes.CDLL(None, use_errno=True)
    if kernel.prctl(38, 1, 0, 0, 0) or kernel.prctl(22, 2, header):
        raise OSError(ctypes.get_errno(), "no filter of system calls")


def near(**around) -> Surroundings:
    return Surroundings(**around)


HOME = {"HOME": "home", "XDG_CACHE_HOME": str(Path(get_cachedir()).parent)}
"""With Matplotlib's list of fonts, which takes seconds to make."""
MATPLOTLIBRC = "text.usetex: True\nlines.linewidth: 9\nsavefig.bbox: tight\n"
OTHERS = {"checkout/README.md": "mine", "checkout/src/a.py": ""}
DEAD = {"made/.lock": "17\nnode7\n"}

WORKS: dict[str, tuple[Surroundings, tuple[str, ...], tuple[str, ...]]] = {
    "no standard error": (near(closed=(2,)), TRAIN, MADE),
    "no streams at all": (near(closed=(0, 1, 2)), PRINT, ()),
    "a hang-up under nohup": (near(hang_up=True, ignored=(signal.SIGHUP,)), TRAIN, MADE),
    "settings of progress bars": (near(variables={"TQDM_MININTERVAL": "9", "TQDM_ASCII": " -="}), PRINT, ()),
    "three columns": (near(variables={"COLUMNS": "3"}), ("--help",), ()),
    "the home in a path": (near(variables=HOME), ("logbook", "--out=~/book"), ("home/book/REPRODUCTION.md",)),
    "no flock": (near(flock=errno.ENOSYS), TRAIN, MADE),
}
"""What a command does not mind: it ends with 0, says no error, and leaves these files."""


@pytest.mark.parametrize("name", WORKS)
def test_a_command_works_with(name, tmp_path):
    around, arguments, files = WORKS[name]
    ended = run(arguments, around, tmp_path)
    assert (ended.code, "rror" in ended.said, "arning" in ended.said) == (0, False, False), ended.said
    assert [file for file in files if not (tmp_path / file).is_file()] == []
    if not {1} & set(around.closed):
        assert ended.printed
    assert sorted(path.name for path in tmp_path.iterdir()) != ["~"]


THEORY = ("theory", "check", "--only", "forward-kl-optimum", "--effort", "quick", "--out")
REFUSED: dict[str, tuple[Surroundings, tuple[str, ...], str]] = {
    "an empty path": (near(), ("logbook", "--out", ""), "--out PATH: expected a path, got nothing; "),
    "an empty folder's name": (near(), ("bandit", "sweep", "--out="), "--out DIR: expected a path, got nothing; "),
    "nobody's home": (near(), ("logbook", "--out", "~nobody-at-all/x"), "--out PATH: expected a path, got ~nobody-at-"),
    "a checkout, by a lab": (
        near(files=OTHERS), (*TRAIN[:-1], "checkout"), "checkout holds other things, such as README.md; choose another",
    ),
    "a checkout, by the theory": (near(files=OTHERS), (*THEORY, "checkout"), "checkout holds other things, such as "),
    "a lab's results, by the theory": (
        near(files={"made/config.json": "{}"}), (*THEORY, "made"), "made holds other things, such as config.json; ",
    ),
    "a lock of a dead run elsewhere": (
        near(flock=errno.ENOSYS, files=DEAD), TRAIN,
        "made is in use by another run, process 17 on node7; wait for it or end it; if it died on another machine, "
        "remove made/.lock",
    ),
    "no locks": (near(flock=errno.ENOLCK), TRAIN, "cannot use made: No locks available; choose another folder, which"),
    "a configuration cut off": (near(files={"made/config.json": '{"seeds"'}), TRAIN, RESTORE),
    "a configuration lost": (near(files={"made/environment.json": "[]"}), TRAIN, RESTORE),
    "an incomplete record": (
        near(files={"REPRODUCTION.json": json.dumps({"sweep": {**RECORD, "claims": [{"name": "x"}]}})}),
        ("logbook",), "REPRODUCTION.json is damaged (one of claims lacks 'statement'); restore it from a copy",
    ),
    "a record of another kind": (
        near(files={"REPRODUCTION.json": json.dumps({"theory": {**RECORD, "seconds": "long"}})}),
        ("logbook",), "REPRODUCTION.json is damaged (seconds: expected float | int | None, got long); restore it",
    ),
    "no backend of that name": (near(variables={"MPLBACKEND": "mine"}), ("bandit", "swep"), "did you mean sweep?"),
    **{
        f"TQDM_{name}={value}": (
            near(variables={f"TQDM_{name}": value}), TRAIN,
            f"TQDM_{name}={value}: expected settings with which tqdm draws a progress bar; unset it (",
        )
        for name, value in {"MININTERVAL": "abc", "BAR_FORMAT": "{mine}", "ASCII": "x", "FILE": "log"}.items()
    },
    "three columns and a slip": (near(variables={"COLUMNS": "3"}), ("bandit", "swep"), "did you mean sweep?"),
}  # fmt: skip
"""What a command refuses: it ends with 2, prints nothing, and says this in one line."""


@pytest.mark.parametrize("name", REFUSED)
def test_a_command_refuses(name, tmp_path):
    around, arguments, says = REFUSED[name]
    ended = run(arguments, around, tmp_path)
    assert (ended.code, ended.printed) == (2, ""), ended.said
    (line,) = ended.said.splitlines()
    assert line.startswith("cokl: error: ")
    assert says in line
    made = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"}
    assert made == set(around.files) - set(DEAD)


@pytest.mark.parametrize("around", [near(closed=(2,)), near(full=(2,)), near(closed=(0, 1, 2))], ids=str)
def test_an_error_that_nobody_can_read_has_its_exit_code_and_goes_nowhere_else(around, tmp_path):
    ended = run(("nonsense",), around, tmp_path)
    assert (ended.code, ended.printed, ended.said) == (2, "", "")


def test_a_hang_up_ends_a_command_that_nobody_protects(tmp_path):
    ended = run(TRAIN, near(hang_up=True), tmp_path)
    assert ended.code == 128 + signal.SIGHUP
    assert ended.said.splitlines()[-1].startswith("cokl: interrupted; ")


def test_a_terminal_without_a_size_shows_progress_and_a_users_settings_change_no_picture(tmp_path):
    """The folder has modules that the workers would take for the standard library's and ours."""
    shadows = {f"{name}.py": "raise RuntimeError" for name in ("random", "bandit", "cokl", "theory", "figures")}
    plain, others = tmp_path / "plain", tmp_path / "others"
    plain.mkdir()
    others.mkdir()
    assert run(TRAIN, near(), plain).code == 0
    around = near(terminal=True, files={"matplotlibrc": MATPLOTLIBRC, **shadows})
    ended = run((*TRAIN, "--jobs", "2"), around, others)
    assert ended.code == 0, ended.said
    assert "100%|" in ended.said
    pictures = sorted(plain.glob("made/figures/*"))
    assert len(pictures) == 4
    for picture in pictures:
        assert (others / picture.relative_to(plain)).read_bytes() == picture.read_bytes()
