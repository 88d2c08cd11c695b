"""The process in which answers are parsed and compared, a script that `cokl.responses.verifier` starts.

It loads math-verify once and then forks a worker that answers requests until one is too much for it: the kernel ends
the worker when an answer has used its CPU time, and refuses it memory beyond the limit. The worker's parent says how it
died and forks the next, which costs milliseconds. Standard input brings requests (4 bytes of length, then JSON);
standard output gives one line of JSON per request, with the request's number. Standalone: it imports nothing of ours.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import signal
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

NEAR_THE_LIMIT = 32 << 20
"""Bytes: an answer that came this close to the memory limit was stopped by it, even if math-verify caught the error."""
WORKER_ANSWERS = 1000
"""Answers after which a worker is replaced, so that caches of symbolic expressions do not use up its memory."""
RETIRED = 3


# How an answer can end its worker; any other signal came from outside.
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGSYS, signal.SIGTRAP}


def main(seconds: float, memory_bytes: int, parent: int) -> None:
    """Answer requests until standard input ends or the process `parent` has died.

    seconds: CPU time per answer. memory_bytes: over the idle process. Raises RuntimeError where math-verify does not
    work: without it no answer would be judged.
    """
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if judge("1", ["1"], False, []) != "correct":  # loads all that workers need
        raise RuntimeError("math-verify does not find 1 equal to 1")
    replies = os.dup(1)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    _say(replies, number=0)
    in_hand = mmap.mmap(-1, 8)  # the number of the request that the worker read last, for its parent
    while True:
        worker = os.fork()
        if worker == 0:
            _work(replies, in_hand, seconds, _memory("VmSize") + memory_bytes)
        _, status = os.waitpid(worker, 0)
        if status == 0:
            return
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == RETIRED:
            continue
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        reason = "timeout" if ended_by == signal.SIGPROF else "crash"
        if ended_by is not None and ended_by != signal.SIGPROF and ended_by not in _CRASHES:
            reason = "killed"
        (number,) = struct.unpack("<Q", in_hand[:8])
        _say(replies, number=number, reason=reason)


def _end_with(parent: int) -> None:
    """End this process and its worker, a session of their own, when `parent` has died, even by SIGKILL."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(0, signal.SIGKILL)


def _work(replies: int, in_hand: mmap.mmap, seconds: float, memory_limit: int) -> None:
    """Serve as a worker; does not return."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_limit, memory_limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for _ in range(WORKER_ANSWERS):
        request = _read_request()
        if request is None:
            os._exit(0)
        number = request.pop("number")
        in_hand[:8] = struct.pack("<Q", number)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            reason = judge(**request)
        except MemoryError:
            reason = "memory"
        signal.setitimer(signal.ITIMER_PROF, 0)
        if reason != "correct" and _memory("VmPeak") > memory_limit - NEAR_THE_LIMIT:
            reason = "memory"
        _say(replies, number=number, reason=reason)
        if reason == "memory":
            os._exit(RETIRED)
    os._exit(RETIRED)


def judge(gold: str, answers: list[str], multiple: bool, tolerances: list[float]) -> str:
    """Compare the answers in the last boxes of a response with the gold answer; returns the reason of the verdict.

    A list may be in one box or spread over as many boxes as it has members.
    """
    golds = _split(gold) if multiple else [gold]
    from math_verify import parse

    parsed_gold = parse(f"\\boxed{{{gold}}}", parsing_timeout=None)
    if not parsed_gold:
        return "unreadable_gold"
    candidates = [answers[-1]]
    if multiple and len(golds) > 1 and len(answers) >= len(golds):
        candidates.append(", ".join(answers[-len(golds) :]))
    for candidate in candidates:
        if _equal(parsed_gold, candidate) or (tolerances and _close(golds, _split(candidate), tolerances, multiple)):
            return "correct"
    return "incorrect"


def _equal(parsed_gold: list[Any], answer: str) -> bool:
    from math_verify import verify

    try:
        return bool(verify(parsed_gold, _parse(answer), timeout_seconds=None, raise_on_error=True))
    except MemoryError:
        raise
    except Exception:
        return False


def _parse(text: str) -> list[Any]:
    from math_verify import parse

    parsed: list[Any] = parse(f"\\boxed{{{text}}}", parsing_timeout=None, raise_on_error=True)
    return parsed


def _close(golds: list[str], answers: list[str], tolerances: list[float], multiple: bool) -> bool:
    """Whether all numbers agree within their tolerances; one tolerance serves all."""
    if not multiple:
        answers = [",".join(answers)]
    if len(golds) != len(answers):
        return False
    wanted, given = _numbers(golds), _numbers(answers)
    if wanted is None or given is None:
        return False
    allowed = tolerances if len(tolerances) == len(golds) else [tolerances[0]] * len(golds)
    pairs = zip(sorted(zip(wanted, allowed, strict=True)), sorted(given), strict=True)
    return all(abs(number - gold) <= tolerance for (gold, tolerance), number in pairs)


def _numbers(texts: list[str]) -> list[float] | None:
    try:
        return [float(_parse(text)[0].evalf()) for text in texts]
    except MemoryError:
        raise
    except Exception:
        return None


def _split(text: str) -> list[str]:
    """The members of a list: split at commas and semicolons outside all brackets."""
    members, depth, start = [], 0, 0
    for position, mark in enumerate(text):
        depth += (mark in "([{") - (mark in ")]}")
        if mark in ",;" and depth == 0:
            members.append(text[start:position])
            start = position + 1
    return [member.strip() for member in [*members, text[start:]] if member.strip()]


def _read_request() -> dict[str, Any] | None:
    header = _read_exactly(4)
    if header is None:
        return None
    body = _read_exactly(struct.unpack("<I", header)[0])
    return None if body is None else json.loads(body)


def _read_exactly(count: int) -> bytes | None:
    parts = []
    while count:
        part = os.read(0, count)
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _say(replies: int, **reply: Any) -> None:
    os.write(replies, json.dumps(reply).encode() + b"\n")


def _memory(field: str) -> int:
    """Bytes of a field of this process's status, such as VmSize."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"no {field} in /proc/self/status")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
