"""Whether a response's final answer equals the gold answer: math-verify, kept in a process that an answer cannot harm.

An answer is hostile input. It is compared in another process, `verifier_process`, where the kernel limits its CPU time
and memory. An answer that is too slow, too large or crashes the process is incorrect; the verdict gives the reason, and
no other answer is affected. It works in any thread: math-verify's own time limits, which need signals on the main
thread, are off.

Assumption beyond the paper: only what stands in the last \\boxed{} is the answer, since Appendix H's prompt asks for
it; a response without one, or cut off inside one, is incorrect. An answer of a list question may be spread over as many
final boxes as the list has members, in any order. A unit that only the answer or only the gold answer has is ignored, a
percentage may be meant as a share, and numbers must agree in four significant digits besides math-verify's six
decimals. The limits are 2 s of CPU time and 256 MiB per answer.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cokl.support.errors import InputError

Reason = Literal[
    "correct",
    "incorrect",
    "no_answer",
    "truncated",
    "too_long",
    "timeout",
    "memory",
    "crash",
    "stalled",
    "unreadable_gold",
]

LONGEST_ANSWER = 10_000
"""Characters from the last \\boxed{ to its end; a longer answer is not tried."""
MOST_BOXES = 32
"""Boxes looked at from the end, for answers that are lists."""
REMEMBERED = 100_000
"""Verdicts kept for repeated answers."""
START_SECONDS = 120.0
"""Wall time in which the process must have started."""
STALL_SECONDS = 120.0
"""Wall time per answer; reached only if the process gets no CPU, since the kernel limits its CPU time."""
_INHERITED = re.compile(r"PATH|HOME|LANG|LC_\w+|TMPDIR|PYTHON\w+|VIRTUAL_ENV|LD_LIBRARY_PATH|OMP_NUM_THREADS")
"""What the process gets of the environment: what Python needs to run, and no tokens."""
_BOX = re.compile(r"\\boxed\s*\{")
_DOLLAR = re.compile(r"(?<!\\)\$")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


@dataclass(frozen=True)
class Judgement:
    """What became of one answer."""

    reason: Reason

    @property
    def correct(self) -> bool:
        """Whether the answer earns the reward."""
        return self.reason == "correct"


class Verifier:
    """Compares answers one at a time in a process of its own; safe to share between threads.

    `counts` holds how often each reason was given, repeated answers included. `killed` counts how often the process was
    killed from outside; the answer is then judged again. The process starts at the first answer that needs it, in a
    child after a fork too.

    Args:
        seconds: CPU time per answer.
        memory_bytes: memory per answer beyond the idle process.

    Examples:
        >>> Verifier().verify("1/2", "so it is 0.5")
        Judgement(reason='no_answer')
    """

    def __init__(self, seconds: float = 2.0, memory_bytes: int = 256 << 20) -> None:
        self.seconds = seconds
        self.memory_bytes = memory_bytes
        self.counts: Counter[Reason] = Counter()
        self._verdicts: OrderedDict[bytes, Judgement] = OrderedDict()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._number = 0
        self.killed = 0
        atexit.register(self.close)
        forgotten = weakref.WeakMethod(self._forget)
        os.register_at_fork(after_in_child=lambda: (forget := forgotten()) and forget())

    def verify(self, gold: str, response: str, multiple: bool = False, tolerances: Sequence[float] = ()) -> Judgement:
        """Judge a whole response against a gold answer, both as LaTeX with or without dollar signs.

        Args:
            gold: the gold answer.
            response: all that the model wrote, whose last box is its answer.
            multiple: the gold answer is a list separated by commas, all of which must be given.
            tolerances: the largest absolute differences, one per gold answer or one for all; none for exact equality.

        Returns:
            The verdict and its reason.

        Raises:
            InputError: the process cannot be started.
        """
        answers = _boxes(response)
        if isinstance(answers, str):
            verdict = Judgement(answers)
        else:
            request = {
                "gold": _plain(gold),
                "answers": answers,
                "multiple": multiple,
                "tolerances": list(tolerances),
            }
            verdict = self._remembered(request)
        with self._lock:
            self.counts[verdict.reason] += 1
        return verdict

    def close(self) -> None:
        """End the process, if there is one; a later answer starts another."""
        with self._lock:
            self._end()

    def _forget(self) -> None:
        """In a child after a fork: leave the parent its process, whose pipes two cannot share."""
        process, self._process, self._lock = self._process, None, threading.Lock()
        if process is not None:
            process.returncode = 0  # not ours to wait for
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def _remembered(self, request: dict[str, Any]) -> Judgement:
        key = hashlib.blake2b(json.dumps(request).encode(), digest_size=16).digest()
        with self._lock:
            verdict = self._verdicts.get(key)
            if verdict is None:
                verdict = self._try(request)
                if verdict.reason != "stalled":
                    self._verdicts[key] = verdict
            else:
                self._verdicts.move_to_end(key)
            while len(self._verdicts) > REMEMBERED:
                self._verdicts.popitem(last=False)
        return verdict

    def _try(self, request: dict[str, Any]) -> Judgement:
        """Ask; again if the process was lost, or its worker killed, for a reason outside the answer."""
        for _ in range(3):
            self._number += 1
            try:
                reply = self._ask(self._process or self._start(), {"number": self._number, **request})
            except TimeoutError:
                self._end()
                return Judgement("stalled")
            except (BrokenPipeError, EOFError):
                self._end()
                self.killed += 1
                continue
            if reply["reason"] == "killed":
                self.killed += 1
                continue
            return Judgement(reply["reason"])
        return Judgement("stalled")

    def _ask(self, process: subprocess.Popen[bytes], request: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(request).encode()
        assert process.stdin is not None
        message = memoryview(struct.pack("<I", len(body)) + body)
        while message:
            message = message[os.write(process.stdin.fileno(), message) :]
        reply = self._reply(process, STALL_SECONDS)
        if reply["number"] != request["number"]:
            raise EOFError("a worker died between requests, perhaps with this one half read")
        return reply

    def _start(self) -> subprocess.Popen[bytes]:
        script = Path(__file__).with_name("verifier_process.py")
        self._pending = b""
        process = subprocess.Popen(
            [sys.executable, "-P", str(script), str(self.seconds), str(self.memory_bytes), str(os.getpid())],
            env={name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)},
            bufsize=0,  # a fork shares no half-written request
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._process = process
        try:
            self._reply(process, START_SECONDS)
        except (EOFError, TimeoutError) as error:
            os.killpg(process.pid, signal.SIGKILL)
            errors = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
            self._end()
            reason = errors.splitlines()[-1] if errors else f"no sign of life within {START_SECONDS:.0f} s"
            raise InputError(f"the verifier does not start ({reason}); is math-verify installed?") from error
        return process

    def _reply(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any]:
        """The next line. Raises TimeoutError, or EOFError if the process is gone."""
        assert process.stdout is not None
        output = select.poll()  # unlike select.select, it takes descriptors above 1023
        output.register(process.stdout, select.POLLIN)
        while b"\n" not in self._pending:
            if not output.poll(1000 * seconds):
                raise TimeoutError
            part = os.read(process.stdout.fileno(), 65536)
            if not part:
                raise EOFError
            self._pending += part
        line, self._pending = self._pending.split(b"\n", 1)
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def final_answer(response: str) -> str:
    """What stands in the last box of a response.

    Args:
        response: all that the model wrote.

    Returns:
        The answer as it is written; "" without a box that is closed.

    Examples:
        >>> final_answer(r"first \\boxed{1}, no: \\boxed{\\frac12}")
        '\\\\frac12'
    """
    answers = _boxes(response)
    return "" if isinstance(answers, str) else answers[-1]


def _boxes(response: str) -> list[str] | Reason:
    """The contents of the last boxes in order, or why there is no answer."""
    starts = deque((box.end() for box in _BOX.finditer(response)), maxlen=MOST_BOXES)
    if not starts:
        return "no_answer"
    contents = [_content(response, start) for start in starts]
    if contents[-1] is None:
        return "too_long" if len(response) - starts[-1] > LONGEST_ANSWER else "truncated"
    if not contents[-1]:
        return "no_answer"
    return [content for content in contents if content]


def _content(response: str, start: int) -> str | None:
    """What stands between the brace that opens before `start` and the one that closes it."""
    depth = 1
    for brace in _BRACE.finditer(response, start, start + LONGEST_ANSWER):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return _plain(response[start : brace.start()])
    return None


def _plain(latex: str) -> str:
    """Without the dollar signs that switch to mathematics."""
    return _DOLLAR.sub("", latex).strip()
