"""A job's process: started in a session of its own, watched, ended with all its workers, its failure told in a line."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from cokl.support.errors import InputError
from llm_bridge.experiment.lock import hold

OUT_OF_MEMORY = "killed due to memory pressure (OOM)"
"""What Ray's log says when it has ended workers; VeRL starts no others and waits for their answer for ever."""

_ENGINE_DIED = re.compile(rb"\(EngineCore[^)]*\) ERROR .*?\] (\w+(?:\.\w+)*(?:Error|Exception): .*)")


def run_watched(command: list[str], environment: dict[str, str], log: Path, stall: float, locks: Sequence[int]) -> None:
    """Run a command in a session of its own, its output appended to `log`; show VeRL's progress on one line.

    Raises InputError if it fails, or is ended since it prints nothing for `stall` seconds or Ray has ended workers of
    it for want of memory. An interrupt ends it too.
    locks: file descriptors that the job keeps open, so that its locks outlive a killed parent.
    """
    started = time.time()
    with log.open("ab") as output:
        output.write(f"\n== started {time.strftime('%Y-%m-%d %H:%M:%S')} ==\n".encode())
        output.flush()
        begin = output.tell()
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True, cwd=log.parent, pass_fds=locks,
            preexec_fn=_end_with_parent,  # noqa: PLW1509  this process has one thread
        )  # fmt: skip
        try:
            changed, size = time.time(), begin
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1.0)
                now = log.stat().st_size
                if now != size:
                    tail = _read_from(log, max(begin, min(size - 1000, now - 20_000)))
                    if OUT_OF_MEMORY in tail:
                        raise InputError(
                            f"Ray ended workers for want of memory; see {log}; with more of it, or smaller batches, "
                            "the same command resumes from the last checkpoint"
                        )
                    changed, size = time.time(), now
                    _show(tail, time.time() - started)
                elif time.time() - changed > stall:
                    raise InputError(
                        f"no output for {stall:.0f} s, so the job was ended as hung; see {log}, then run the same "
                        "command again, which resumes from the last checkpoint"
                    )
        finally:
            _end(process)
            if sys.stderr.isatty():
                print("\r\x1b[2K", end="", file=sys.stderr)
    if process.returncode:
        raise InputError(f"{_reason(log, begin)}; the whole log is {log}")


def _end_with_parent() -> None:
    """In the new process: have the kernel end it when this one is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _end(process: subprocess.Popen) -> None:
    """End a job with all its workers, gently first."""
    for signal_number, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal_number)
            process.wait(patience)
            time.sleep(0.5)  # for its workers


def _read_from(log: Path, begin: int) -> str:
    """The log from a byte on."""
    with log.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")


def _show(text: str, seconds: float) -> None:
    """VeRL's last progress line, on a terminal."""
    if sys.stderr.isatty():
        lines = re.findall(r"(?:Training Progress|buffer): [^\r\n]*", text)
        progress = re.sub(r"\|.*?\|", " ", lines[-1])[:100] if lines else "starting"
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[2K  {seconds:5.0f} s  {progress}"[: width + 5], end="", file=sys.stderr, flush=True)


def _reason(log: Path, begin: int) -> str:
    """The line of a failed job's log that says most: what ended vLLM's engine, whose every request then fails too, or
    an error among the last lines.
    """
    lines: deque[str] = deque(maxlen=4000)  # of a log that may be longer than memory
    with log.open("rb") as file:
        file.seek(begin)
        for line in file:
            if died := _ENGINE_DIED.search(line):
                return f"vLLM's engine ended: {died[1].decode(errors='replace')}"[:400]
            lines.append(line.decode(errors="replace").rstrip())
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    plain = [re.sub(r"^\([^)]*pid=[^)]*\)\s*", "", line) for line in plain if line.strip()]
    for pattern in (r"^(?:error|cokl): (.*)", r".*InputError: (.*)", r"^(\w+(?:\.\w+)*(?:Error|Exception): .*)"):
        messages = [match.group(1) for line in plain if (match := re.match(pattern, line))]
        if messages:
            return messages[-1][:400]
    return plain[-1][:400] if plain else "the job failed without a word"


@contextlib.contextmanager
def one_job_at_a_time() -> Iterator[int]:
    """Hold the lock of the Ray cluster that the job will use. Raises InputError while another experiment holds it.

    VeRL's queue has one name per cluster, so that two jobs would mix their rows. The lock of the cluster at RAY_ADDRESS
    lies in the user's home, which its nodes share; without one a job starts a cluster of its own, of which a machine
    can hold one, since two would give their weight updates the same socket: its lock lies in a folder of this user's.
    """
    address = os.environ.get("RAY_ADDRESS", "")
    if address == "auto":
        current = Path(tempfile.gettempdir()) / "ray" / "ray_current_cluster"
        address = current.read_text(encoding="utf-8").strip() if current.is_file() else address
    if address:
        name = re.sub(r"[^\w.]+", "-", address.removeprefix("ray://"))
        path = Path.home() / ".cache" / "cokl" / f"verl-{name}.lock"
        busy = f"another experiment is running VeRL on the Ray cluster at {address}, and two would mix their rows"
    else:
        folder = Path(tempfile.gettempdir()) / f"cokl-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        owned = folder.lstat()
        if not stat.S_ISDIR(owned.st_mode) or owned.st_uid != os.getuid() or owned.st_mode & 0o022:
            raise InputError(f"{folder} is not this user's own folder, so no lock can lie there; remove it")
        path = folder / "verl.lock"
        busy = "another experiment is running VeRL on this machine, and two would block each other"
    with hold(path, busy) as lock:
        yield lock
