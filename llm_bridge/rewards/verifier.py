"""Whether a response's final answer equals the gold answer: math-verify, kept in a process that an answer cannot harm.

An answer is hostile input. It is compared in another process, `verifier_process`, where the kernel limits its CPU time
and memory. An answer that is too slow, too large or crashes the process is incorrect; the verdict gives the reason, and
a later answer starts the process again, which takes about a second. There are several such processes, so that threads
do not wait for each other's answers. It works in any thread: math-verify's own time limits, which need signals on the
main thread, are off.

Assumption beyond the paper: only what stands in the last \\boxed{} is the answer, since Appendix H's prompt asks for
it; a response without one, or cut off inside one, is incorrect. An answer of a list question may be spread over as many
final boxes as the list has members, in any order. Words after a number are compared as text and nothing is computed
from them: 500 cm is not 5 m. Where only the answer or only the gold answer has words, they are ignored if they name a
measure or are the plural of what is counted. A percentage may be meant as a share. Numbers must agree in four
significant digits besides math-verify's six decimals. The limits are 2 s of CPU time and 256 MiB per answer.
"""

from __future__ import annotations

import functools
import os
import queue
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from cokl.support.errors import InputError
from cokl.support.extras import not_installed

Reason = Literal[
    "correct", "incorrect", "no_answer", "truncated", "too_long", "timeout", "memory", "crash", "unreadable_gold"
]

LONGEST_ANSWER = 10_000
"""Characters from the last \\boxed{ to its end; a longer answer is not tried."""
MOST_BOXES = 32
"""Boxes looked at from the end, for answers that are lists."""
MOST_PROCESSES = 4
"""That a verifier has at once unless it is told otherwise; fewer on a machine of fewer cores."""
REMEMBERED = 10_000
"""Verdicts kept for repeated answers."""
TRIES = 3
"""Processes that an answer is given to, where something outside kills them."""
_INHERITED = re.compile(r"PATH|HOME|LANG|LC_\w+|TMPDIR|PYTHON\w+|VIRTUAL_ENV|LD_LIBRARY_PATH|OMP_NUM_THREADS")
"""What the process gets of the environment: what Python needs to run, and no tokens."""
_FROM_OUTSIDE = (0, -signal.SIGKILL, -signal.SIGTERM)
"""How a process ends that no answer ended: it has judged its number of answers, or was killed."""
_SCRIPT = str(Path(__file__).with_name("verifier_process.py"))
_BOX = re.compile(r"\\boxed\s*\{")
_DOLLAR = re.compile(r"(?<!\\)\$")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


@dataclass(frozen=True)
class Judgement:
    """What became of one answer."""

    reason: Reason
    answer: str = ""
    """What stands in the last box, as it is written; "" without one that is closed."""

    @property
    def correct(self) -> bool:
        """Whether the answer earns the reward."""
        return self.reason == "correct"

    def __bool__(self) -> bool:
        return self.correct


class _Worker(NamedTuple):
    """A process and our end of the pipe to it."""

    process: subprocess.Popen[bytes]
    pipe: Connection

    def reply(self, *request: Any) -> str:
        """What a request is answered with, or the first word without one; "" if the process is lost."""
        try:
            if request:
                self.pipe.send(request)
            # No pickle: hostile input has reached the process.
            return self.pipe.recv_bytes(1000).decode(errors="replace")
        except (EOFError, OSError):
            return ""

    def ended(self) -> int:
        """Wait for a process that ends; what it ended with."""
        self.pipe.close()
        return self.process.wait()


class Verifier:
    """Compares answers in processes of its own, as many at once as it has processes; safe to share between threads.

    A process starts when an answer finds none idle, in a child after a fork too. It ends with this one.

    Args:
        seconds: CPU time per answer.
        memory_bytes: memory per answer beyond the idle process.
        processes: answers judged at once, >= 1; None for the machine's cores, at most `MOST_PROCESSES`.

    Examples:
        >>> Verifier().verify("1/2", r"first \\boxed{1}, no: \\boxed{\\frac12}")
        Judgement(reason='correct', answer='\\\\frac12')
    """

    def __init__(self, seconds: float = 2.0, memory_bytes: int = 256 << 20, processes: int | None = None) -> None:
        if processes is not None and processes < 1:
            raise InputError(f"processes: expected at least one, got {processes}")
        self._limits = [str(seconds), str(memory_bytes)]
        self._processes = processes or min(os.cpu_count() or 1, MOST_PROCESSES)
        self._remembered = functools.lru_cache(REMEMBERED)(self._asked)
        self._idle = self._none_started()
        os.register_at_fork(after_in_child=self._forget)

    def verify(self, gold: str, response: str, multiple: bool = False, tolerances: Sequence[float] = ()) -> Judgement:
        """Judge a whole response against a gold answer, both as LaTeX with or without dollar signs.

        Args:
            gold: the gold answer.
            response: all that the model wrote, whose last box is its answer.
            multiple: the gold answer is a list separated by commas, all of which must be given.
            tolerances: the largest absolute differences, one per gold answer or one for all; none for exact equality.

        Returns:
            The verdict, its reason and the answer.

        Raises:
            InputError: a process cannot be started, or is killed from outside again and again.
        """
        answers = _boxes(response)
        if isinstance(answers, str):
            return Judgement(answers)
        reason = self._remembered(_plain(gold), answers, multiple, tuple(map(float, tolerances)))
        return Judgement(reason, answers[-1])

    def close(self) -> None:
        """End the processes, once they have judged what they are at; a later answer starts others."""
        for worker in [self._idle.get() for _ in range(self._processes)]:
            if worker is not None:
                worker.process.kill()
                worker.ended()
            self._idle.put(None)

    def _none_started(self) -> queue.LifoQueue[_Worker | None]:
        """What is idle: processes, and None for each that may still be started; processes come first."""
        idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(self._processes):
            idle.put(None)
        return idle

    def _forget(self) -> None:
        """In a child after a fork: leave the parent its processes, whose pipes two cannot share."""
        for worker in self._idle.queue:
            if worker is not None:
                worker.process.returncode = 0  # not ours to wait for
        self._idle = self._none_started()

    def _asked(self, *request: Any) -> Reason:
        """Ask; again if the process was lost for a reason outside the answer. Raises InputError if that goes on."""
        idle = self._idle
        worker = idle.get()
        try:
            for _ in range(TRIES):
                # Whoever is interrupted from here on leaves no late reply behind.
                asked, worker = worker or self._started(), None
                if (reply := asked.reply(*request)) in get_args(Reason):
                    worker = asked
                    return reply  # type: ignore[return-value]  # one of them
                if reply:
                    asked.process.kill()
                code = asked.ended()
                if reply or code not in _FROM_OUTSIDE:
                    return "timeout" if code == -signal.SIGPROF else "crash"
        finally:
            idle.put(worker)
        raise InputError(f"the verifier's process was killed {TRIES} times, probably because memory is short")

    def _started(self) -> _Worker:
        ours, theirs = Pipe()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", _SCRIPT, str(theirs.fileno()), *self._limits],
                env={name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        worker = _Worker(process, ours)
        said = worker.reply()
        if said != "started":
            worker.ended()
            remedy = "" if find_spec("math_verify") else f"; {not_installed('math_verify')}"
            raise InputError(f"the verifier does not start ({said or 'it was killed'}){remedy}")
        return worker


def _boxes(response: str) -> tuple[str, ...] | Reason:
    """The contents of the last boxes in order, or why there is no answer."""
    starts = deque((box.end() for box in _BOX.finditer(response)), maxlen=MOST_BOXES)
    if not starts:
        return "no_answer"
    contents = [_content(response, start) for start in starts]
    if contents[-1] is None:
        return "too_long" if len(response) - starts[-1] > LONGEST_ANSWER else "truncated"
    if not contents[-1]:
        return "no_answer"
    return tuple(content for content in contents if content)


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
