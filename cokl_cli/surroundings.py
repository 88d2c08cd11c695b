"""What a command finds around it, made what the libraries take for granted before any of them is loaded."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn, TextIO

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from cokl.support.errors import InputError

NARROWEST, WIDEST = 40, 500
"""Columns of a terminal: help in fewer never ends, and in many more it takes minutes."""
PATHS = ConstructorRegistry()
"""How the parser reads every option and argument that is a path."""


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, whose number is its argument: ends a command as Ctrl-C does."""


def settle() -> None:
    """Open the closed streams, listen to signals, and leave out what others have set for their own programs.

    A user's matplotlibrc or backend would stop Matplotlib as it is loaded. Raises InputError where the current folder
    is gone, in which PyTorch does not load, and for a variable with which no progress bar can be drawn.
    """
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ± is no reason to stop
    if threading.current_thread() is threading.main_thread():
        for ending in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(ending) is not signal.SIG_IGN:  # as nohup has it, for the terminal's end
                signal.signal(ending, _terminated)
    columns = shutil.get_terminal_size().columns
    if not NARROWEST <= columns <= WIDEST:
        os.environ["COLUMNS"] = str(min(max(columns, NARROWEST), WIDEST))
    os.environ |= {"MATPLOTLIBRC": os.devnull, "MPLBACKEND": "agg"}
    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")  # joblib's outlives an interrupted command
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise InputError("the folder that you are in is gone; change to another one") from error
    _try_progress_bars()


def silence(stream: TextIO) -> None:
    """Discard what Python would still write to a standard stream as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _try_progress_bars() -> None:
    """Draw a progress bar, unseen, if the environment has settings of tqdm's, some of which it reads as it is loaded.

    Raises InputError if they are none.
    """
    variables = sorted(name for name in os.environ if name.startswith("TQDM_"))
    if not variables:
        return
    from cokl.support.results import progress_bar

    try:
        with contextlib.redirect_stderr(io.StringIO()), progress_bar(1, "trials") as bar:
            bar.update()
    except Exception as error:  # of many kinds, by variable: ValueError, KeyError, AttributeError, ZeroDivisionError
        given = ", ".join(f"{name}={os.environ[name]}" for name in variables)
        reason = f"{type(error).__name__}: {error}"
        raise InputError(
            f"{given}: expected settings with which tqdm draws a progress bar; unset it ({reason})"
        ) from error


def _open_streams() -> None:
    """Open to nowhere what is closed of the standard streams, whose numbers the next files would get otherwise."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one
            for place in (name, f"__{name}__"):
                setattr(sys, place, os.fdopen(number, mode, closefd=False))


def _terminated(number: int, _: object) -> NoReturn:
    raise Terminated(number)


@PATHS.primitive_rule
def _path(asked: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """A path as a shell would expand it, which leaves the ~ of `--out=~/x` and `--out '~/x'` alone."""
    if asked.type not in (Path, Path | None):
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=lambda texts: expanded(texts[0]),
        is_instance=lambda value: isinstance(value, Path | None),
        str_from_instance=lambda path: [str(path)],
    )


def expanded(text: str) -> Path:
    """The path that a user has written. Raises ValueError for an empty one, and for the home of nobody."""
    if not text.strip():
        raise ValueError("expected a path, got nothing; . is the folder you are in")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(f"expected a path, got {text}: {error}") from error
