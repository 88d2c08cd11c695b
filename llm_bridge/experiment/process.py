"""A job's process: one at a time, its output in a log, ended with all its workers, its failure told in a line."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from cokl.support.errors import InputError
from cokl.support.files import locked

_ERRORS = (r"(?:error|cokl): (.*)", r".*InputError: (.*)", r"(\w+(?:\.\w+)*(?:Error|Exception): .*)")
"""How a line begins that says why a job failed, the surest first."""


def run(command: Sequence[str], environment: dict[str, str], log: Path) -> None:
    """Run a command in a session of its own, in the folder of `log`, to which its output is added.

    Raises InputError if it fails, and ends it, with all that it started, on an interrupt.
    """
    before = log.stat().st_size if log.exists() else 0
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True, cwd=log.parent,
            preexec_fn=_end_with_parent,  # noqa: PLW1509  this process has one thread
        )  # fmt: skip
        try:
            process.wait()
        finally:
            _end(process)
    if process.returncode:
        with log.open("rb") as written:
            written.seek(max(before, log.stat().st_size - 1_000_000))
            lines = written.read().decode(errors="replace").splitlines()
        raise InputError(f"{_reason(lines)}; the whole log is {log}")


def _end_with_parent() -> None:
    """In the new process: have the kernel end it when this one is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a job with all its workers, gently first."""
    for signal_number, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal_number)
            process.wait(patience)
            time.sleep(0.5)  # for its workers


def _reason(lines: Sequence[str]) -> str:
    """The line of a failed job's last ones that says most."""
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines if line.strip()]
    plain = [re.sub(r"^\([^)]*pid=[^)]*\)\s*", "", line).strip() for line in plain]
    for pattern in _ERRORS:
        messages = [match.group(1) for line in plain if (match := re.match(pattern, line))]
        if messages:
            return messages[-1][:400]
    return plain[-1][:400] if plain else "the job failed without a word"


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hold the lock of the Ray cluster that the job will use. Raises InputError while another experiment holds it.

    VeRL's queue has one name per cluster, so that two jobs would mix their rows. Without RAY_ADDRESS a job starts a
    cluster of its own. A machine can hold one of these, since two would give their weight updates the same socket, so
    that its name stands for the cluster. The locks lie in the user's home, which the nodes of a cluster share.
    """
    cluster = os.environ.get("RAY_ADDRESS") or socket.gethostname()
    name = re.sub(r"[^\w.]+", "-", cluster.removeprefix("ray://"))
    lock = Path.home() / ".cache" / "cokl" / f"verl-{name}.lock"
    with locked(lock, f"another experiment is running VeRL on {cluster}, and two would mix their rows"):
        yield
