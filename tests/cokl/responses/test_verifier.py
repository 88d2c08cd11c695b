"""Answers are judged as a reader would judge them, and no answer, however hostile, costs more than its limits."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cokl.responses import verifier as verifier_module
from cokl.responses.verifier import LONGEST_ANSWER, Verifier
from cokl.support.errors import InputError

PAIRS = [json.loads(line) for line in Path(__file__).with_name("verifier_pairs.jsonl").read_text().splitlines()]
PAGE = Path(__file__).parents[3] / "docs/how-to/other-models.md"
SECONDS = 0.3
MEMORY = 256 << 20


@pytest.fixture(scope="module")
def verifier():
    found = Verifier(seconds=SECONDS, memory_bytes=MEMORY)
    yield found
    found.close()


def boxed(answer: str) -> str:
    return f"Therefore the answer is \\boxed{{{answer}}}."


POWERS = [
    "9**9**9**9",
    "9^9^9^9",
    "9^{9^{9^{9}}}",
    "2^{10^{10}}",
    "10^{10^{9}}",
    "7^{7^{7^{7^{7}}}}",
    "(10^{18})^{10^{9}}",
]
FACTORIALS = ["10000000!", "((((9!)!)!)!)", "\\binom{10^{8}}{5 \\cdot 10^{7}}", "170!!!!!!", "(10^{10})!"]
SUMS = [
    "\\sum_{n=1}^{10^{12}} \\frac{1}{n^{2}+n+1}",
    "\\prod_{n=1}^{10^{9}} n",
    "\\int_0^1 e^{e^{e^{x^2}}} \\sin(x^x) dx",
    "\\lim_{x \\to 0} \\frac{\\sin(\\sin(\\sin(\\sin x)))}{\\tan(\\tan(\\tan x))}",
    "\\sum_{i=1}^{9^9}\\sum_{j=1}^{9^9}\\sum_{k=1}^{9^9} ijk",
    "\\int \\int \\int x^{x^{x}} dx dx dx",
]
EXPANSIONS = [
    "(x+y+z+w)^{99}" * 3,
    "(a+b+c+d+e+f)^{200}",
    "(x+1)^{10^{6}}",
    "\\sqrt{" * 100 + "2" + "}" * 100,
    "x^{999999999}-1",
    "\\frac{d^{500}}{dx^{500}} e^{x^2}",
    "(\\sin x + \\cos x)^{10000}",
]
NESTS = [
    "{" * 4000 + "}" * 4000,
    "(" * 3000 + "1" + ")" * 3000,
    "[" * 3000 + "]" * 3000,
    "\\frac{1}{" * 900 + "1" + "}" * 900,
    "\\left(" * 900 + "1" + "\\right)" * 900,
    "\\sqrt{" * 1200 + "1" + "}" * 1200,
    "\\text{" * 1200 + "}" * 1200,
    "-" * 5000 + "1",
    "|" * 5000 + "1",
    "x_{" * 1500 + "1" + "}" * 1500,
    "1^{" * 1500 + "1" + "}" * 1500,
    "\\begin{pmatrix}" * 300 + "1" + "\\end{pmatrix}" * 300,
    "\\{" * 3000 + "\\}" * 3000,
]
LONG = [
    "1+" * 4000 + "1",
    "1," * 4900 + "1",
    "9" * 9900,
    "1/" * 4000 + "1",
    "x" * 9000,
    "=" * 9000,
    "1=" * 4000 + "1",
    "\\cup".join(f"({n},{n + 1})" for n in range(600)),
    "0." + "3" * 9000,
    " " * 9000 + "1",
    "\\pm 1" * 1000,
    "1 \\text{ or } " * 500 + "1",
    "&1" * 3000,
    "1\\\\" * 3000,
    "%" * 9000,
    "," * 9000,
]
HUGE = [
    "{" * 1_000_000,
    "1" * 1_000_000,
    "\\boxed{" * 100_000,
    "\\boxed{" * 100_000 + "}" * 100_000,
    "\\" * 1_000_000,
    "}" * 1_000_000,
    "\x00" * 1_000_000,
    "\\{" * 500_000,
    "$" * 1_000_000,
]
CHARACTERS = [
    "\x00",
    "17\x00",
    "\x1b[2J",
    "\ud800",
    "\u202e71",
    "e" + "\u0301" * 9000,
    "\U0001f600" * 2000,
    "\ufdfa" * 500,
    "\u0661\u0667",
    "\uff11" * 100 + "\uff17",
    "\u00b2" * 1000,
    "\n" * 9000,
    "\r\n\t\v\f",
    "\u2028\u2029",
    "nan",
    "\\infty - \\infty",
    "\\frac{1}{0}",
    "\\frac{0}{0}",
    "0^{0^{0}}",
    "i^{i^{i}}",
]
CODE = [
    '__import__("os").system("sleep 60")',
    "\\input{/dev/zero}",
    "\\def\\a{\\a\\a}\\a",
    "\\loop\\iftrue\\repeat",
    "lambda: 1",
    '{"reason": "correct"}',
    "exit()",
    "%s%s%s%n",
    "(a|a)*" * 500 + "b",
]
HOSTILE = [*POWERS, *FACTORIALS, *SUMS, *EXPANSIONS, *NESTS, *LONG, *HUGE, *CHARACTERS, *CODE]


def test_there_are_enough_hostile_answers():
    assert len(set(HOSTILE)) == len(HOSTILE) >= 80


def workers_of(process: int) -> list[str]:
    """The id of the worker that a verifier's process has now; [] while it has none."""
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def cpu_seconds(process: int, worker: str) -> float:
    """What the kernel has counted for a verifier's process, the workers that have ended, and this one."""
    ours, its = (Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split() for name in (process, worker))
    return sum(map(int, [*ours[11:15], *its[11:13]])) / os.sysconf("SC_CLK_TCK")


def test_hostile_answers_stay_within_their_limits_and_harm_no_neighbour():
    verifier = Verifier(seconds=SECONDS, memory_bytes=MEMORY)
    verifier.verify("1", boxed("2"))
    before = verifier.counts.copy()
    assert verifier._process
    process = verifier._process.pid
    reasons = {}
    for number, answer in enumerate(HOSTILE):
        (worker,) = workers_of(process)
        spent = cpu_seconds(process, worker)
        reasons[answer] = reason = verifier.verify("17", boxed(answer)).reason
        assert verifier._process.pid == process, answer[:60]
        while reason in ("timeout", "memory", "crash") and workers_of(process) in ([], [worker]):
            time.sleep(0.001)  # until the worker's successor is there, and its time is its parent's
        assert cpu_seconds(process, *workers_of(process)) - spent <= SECONDS + 0.25, answer[:60]
        assert verifier.verify(str(number), boxed(str(number))).correct, f"after {answer[:60]!r}"
        assert not verifier.verify(str(number), boxed(str(number + 1))).correct, f"after {answer[:60]!r}"
    verifier.close()
    right = {answer for answer, reason in reasons.items() if reason == "correct"}
    assert right <= {"17\x00", "\u0661\u0667"}
    assert sum((verifier.counts - before).values()) == 3 * len(HOSTILE)
    assert sum(reason == "timeout" for reason in reasons.values()) >= 10
    assert all(reasons[answer] in ("too_long", "no_answer", "truncated", "incorrect") for answer in HUGE)


def test_too_much_memory_is_refused_and_said():
    small = Verifier(seconds=60, memory_bytes=96 << 20)
    verdict = small.verify("17", boxed("2^{10^{10}}"))
    assert verdict.reason == "memory"
    assert small.verify("17", boxed("17")).correct
    small.close()


def test_a_settled_answer_is_not_tried_twice(verifier):
    slow = boxed("(a+b+c+d+e+f+g)^{201}")
    first = verifier.verify("17", slow)
    process = verifier._process
    verifier.close()
    assert verifier.verify("17", slow) is first
    assert verifier.verify("17", f"Differently worded: {slow}") is first
    assert verifier._process is None
    assert process.poll() is not None


def test_a_killed_process_is_started_again(verifier):
    assert verifier.verify("301", boxed("301")).correct
    os.killpg(verifier._process.pid, signal.SIGKILL)
    assert verifier.verify("302", boxed("302")).correct
    assert verifier.verify("303", boxed("303")).correct


def test_a_worker_that_dies_idle_shifts_no_verdict(verifier):
    assert verifier.verify("311", boxed("311")).correct
    workers = [int(child) for child in workers_of(verifier._process.pid)]
    for worker in workers:
        os.kill(worker, signal.SIGSEGV)
    assert verifier.verify("312", boxed("312")).correct
    assert not verifier.verify("313", boxed("312")).correct
    assert verifier.verify("314", boxed("314")).correct


def killed_at_work(slow: Verifier, ending: signal.Signals, ticks: int, patience: float) -> str:
    """The reason of a verdict whose worker was ended by a signal after so many ticks of work on it."""
    assert slow.verify("1", boxed("1")).correct
    assert slow._process is not None
    (worker,) = workers_of(slow._process.pid)
    with ThreadPoolExecutor(1) as pool:
        verdict = pool.submit(slow.verify, "17", boxed("9^{9^{9^{9}}}"))
        before = _cpu_ticks(worker)
        while _cpu_ticks(worker) < before + ticks:
            time.sleep(0.02)
        os.kill(int(worker), ending)
        return verdict.result(timeout=patience).reason


def test_a_worker_that_dies_at_work_is_a_crash():
    slow = Verifier(seconds=60)
    assert killed_at_work(slow, signal.SIGSEGV, ticks=20, patience=60) == "crash"
    assert slow.verify("2", boxed("2")).correct
    slow.close()


def test_an_answer_whose_worker_is_killed_from_outside_is_judged_again():
    """As the system does when memory is short: no verdict on the answer, so none is remembered."""
    slow = Verifier(seconds=1)
    # Its own timeout, from the second try.
    assert killed_at_work(slow, signal.SIGKILL, ticks=10, patience=120) == "timeout"
    assert slow.killed == 1
    assert slow.verify("2", boxed("2")).correct
    slow.close()


def test_a_child_after_a_fork_has_a_process_of_its_own(verifier):
    """Both judge on at once: neither reads the answers of the other, and the child ends nothing of its parent."""
    assert verifier.verify("1001", boxed("1001")).correct
    before = verifier._process.pid
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        judged = [verifier.verify(str(n), boxed(str(n + n % 2))).correct == (n % 2 == 0) for n in range(2000, 2050)]
        own = verifier._process is not None and verifier._process.pid != before
        verifier.close()
        os.write(writer, b"good" if all(judged) and own else b"bad!")
        os._exit(0)
    judged = [verifier.verify(str(n), boxed(str(n + n % 2))).correct == (n % 2 == 0) for n in range(3000, 3050)]
    assert all(judged)
    os.waitpid(child, 0)
    assert os.read(reader, 4) == b"good"
    assert verifier._process.pid == before
    assert verifier.verify("1002", boxed("1002")).correct


def test_the_process_inherits_no_token(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    own = Verifier()
    assert own.verify("1", boxed("1")).correct
    assert own._process is not None
    with open(f"/proc/{own._process.pid}/environ", "rb") as file:
        assert b"secret" not in file.read()
    own.close()


@pytest.mark.parametrize("seconds", [0.0, 0.3, 3.0])
def test_no_process_outlives_a_killed_parent(seconds):
    """Killed while the verifier starts, and after."""
    code = """
import threading, time
from cokl.responses.verifier import Verifier
verifier = Verifier()
threading.Thread(target=verifier.verify, args=("1", r"\\boxed{1}"), daemon=True).start()
while verifier._process is None:
    time.sleep(0.001)
print(verifier._process.pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    started = int(parent.stdout.readline())
    time.sleep(seconds)
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{started}"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _cpu_ticks(pid: str) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[11])


def test_threads_share_a_verifier(verifier):
    def judge(number: int) -> bool:
        assert threading.current_thread() is not threading.main_thread()
        return verifier.verify(str(number), boxed(str(number + number % 2))).correct

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(judge, range(100, 200))) == [number % 2 == 0 for number in range(100, 200)]


def test_no_process_outlives_its_owner(verifier):
    assert verifier.verify("321", boxed("321")).correct
    pid = verifier._process.pid
    workers = workers_of(pid)
    verifier.close()
    deadline = time.monotonic() + 60
    while any(_alive(int(worker)) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair['kind']}-{pair['ground_truth']}-{pair['correct']}")
def test_pairs_are_judged_as_by_a_reader(verifier, pair):
    how = {"multiple": pair["multiple"], "tolerances": pair["tolerances"]}
    assert verifier.verify(pair["ground_truth"], pair["response"], **how).correct == pair["correct"]
    assert verifier.verify(pair["ground_truth"], boxed("123454321"), **how).reason == "incorrect"


def test_what_stays_math_verifys_judgement_is_as_the_page_says(verifier):
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (correct|incorrect) \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) >= 8
    assert [verifier.verify(gold, boxed(answer)).reason for gold, answer, _ in rows] == [
        verdict for *_, verdict in rows
    ]


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("The answer is 17", "no_answer"),
        ("", "no_answer"),
        ("\\boxed{}", "no_answer"),
        ("\\boxed 17", "no_answer"),
        ("\\boxed{17", "truncated"),
        ("\\boxed{17} or rather \\boxed{\\frac{3", "truncated"),
        ("\\boxed{" + "1" * (LONGEST_ANSWER + 1) + "}", "too_long"),
        ("\\boxed{16} no, \\boxed{17}", "correct"),
        ("\\boxed{17} no, \\boxed{16}", "incorrect"),
        ("\\boxed{\\boxed{17}}", "correct"),
        ("<think>\\boxed{3}</think> $$\\boxed{17}$$", "correct"),
    ],
)
def test_the_last_box_is_the_answer(verifier, response, reason):
    assert verifier.verify("17", response).reason == reason


def test_a_gold_answer_that_cannot_be_read_is_said(verifier):
    assert verifier.verify("", boxed("17")).reason == "unreadable_gold"


@settings(max_examples=60)
@given(numerator=st.integers(-999, 999), denominator=st.integers(1, 99), off=st.integers(-2, 2))
def test_fractions_are_equal_exactly_when_their_values_are(numerator, denominator, off):
    gold = f"\\frac{{{numerator}}}{{{denominator}}}"
    answer = f"\\frac{{{3 * numerator + off}}}{{{3 * denominator}}}"
    assert SHARED.verify(gold, boxed(answer)).correct == (off == 0)


SHARED = Verifier(seconds=10)


def test_a_process_that_cannot_start_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "verifier_process.py").write_text("raise ModuleNotFoundError('no math_verify')")
    monkeypatch.setattr(verifier_module, "__file__", str(tmp_path / "verifier.py"))
    with pytest.raises(InputError, match=r"the verifier does not start .*no math_verify") as error:
        Verifier().verify("1", boxed("1"))
    assert "\n" not in str(error.value)


def test_works_in_the_threads_of_a_ray_actor():
    ray: Any = importlib.import_module("ray")

    class Judge:
        def __init__(self) -> None:
            self.verifier = Verifier(seconds=SECONDS)

        def judge(self, number: int) -> tuple[bool, str]:
            off_main = threading.current_thread() is not threading.main_thread()
            answer = boxed("9^{9^{9^{9}}}") if number % 5 == 0 else boxed(f"{number} + 0")
            return off_main, self.verifier.verify(str(number), answer).reason

    ray.init(num_cpus=1, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        actor = ray.remote(Judge).options(max_concurrency=4).remote()
        found = ray.get([actor.judge.remote(number) for number in range(1, 21)], timeout=300)
    finally:
        ray.shutdown()
    assert all(off_main for off_main, _ in found)
    assert [reason for _, reason in found] == ["timeout" if n % 5 == 0 else "correct" for n in range(1, 21)]
