"""Answers are judged as a reader would judge them, and no answer, however hostile, costs more than its limits."""

from __future__ import annotations

import importlib
import json
import os
import re
import resource
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

from cokl.support.errors import InputError
from llm_bridge.rewards.verifier import LONGEST_ANSWER, Judgement, Verifier

PAIRS = [json.loads(line) for line in Path(__file__).with_name("verifier_pairs.jsonl").read_text().splitlines()]
PAGE = Path(__file__).parents[3] / "docs/how-to/other-models.md"
SECONDS = 0.3
MEMORY = 256 << 20


@pytest.fixture(scope="module")
def verifier():
    found = Verifier(processes=1)  # with its own limits: on a slow machine a first equation takes 0.4 s
    yield found
    found.close()


def started(verifier: Verifier) -> list[subprocess.Popen[bytes]]:
    """Its processes that are idle."""
    return [worker.process for worker in verifier._idle.queue if worker is not None]


def boxed(answer: str) -> str:
    return f"Therefore the answer is \\boxed{{{answer}}}."


HOSTILE = [
    "9**9**9**9",
    "9^{9^{9^{9}}}",
    "(10^{18})^{10^{9}}",
    "10000000!",
    "\\binom{10^{8}}{5 \\cdot 10^{7}}",
    "\\sum_{i=1}^{9^9}\\sum_{j=1}^{9^9}\\sum_{k=1}^{9^9} ijk",
    "\\int \\int \\int x^{x^{x}} dx dx dx",
    "\\lim_{x \\to 0} \\frac{\\sin(\\sin(\\sin(\\sin x)))}{\\tan(\\tan(\\tan x))}",
    "(a+b+c+d+e+f)^{200}",
    "x^{999999999}-1",
    "\\frac{d^{500}}{dx^{500}} e^{x^2}",
    "{" * 4000 + "}" * 4000,
    "(" * 3000 + "1" + ")" * 3000,
    "\\frac{1}{" * 900 + "1" + "}" * 900,
    "-" * 5000 + "1",
    "\\begin{pmatrix}" * 300 + "1" + "\\end{pmatrix}" * 300,
    "1+" * 4000 + "1",
    "9" * 9900,
    "\\cup".join(f"({n},{n + 1})" for n in range(600)),
    "\\pm 1" * 1000,
    "," * 9000,
    "17\x00",
    "\x1b[2J",
    "\ud800",
    "\u202e71",
    "e" + "\u0301" * 9000,
    "\ufdfa" * 500,
    "\u0661\u0667",
    "\n" * 9000,
    "\u2028\u2029",
    "\\infty - \\infty",
    "\\frac{0}{0}",
    "i^{i^{i}}",
    '__import__("os").system("sleep 60")',
    "\\input{/dev/zero}",
    "\\def\\a{\\a\\a}\\a",
    '{"reason": "correct"}',
    "correct\n",
    "(a|a)*" * 500 + "b",
]
HUGE = ["{" * 1_000_000, "\\boxed{" * 100_000 + "}" * 100_000, "\\" * 1_000_000, "\x00" * 1_000_000, "$" * 1_000_000]


def cpu_seconds(verifier: Verifier) -> float:
    """What the kernel has counted for this verifier's idle processes and for all children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(map(seconds_of, started(verifier)))


def seconds_of(process: subprocess.Popen[bytes]) -> float:
    """The CPU time that the kernel has counted for a process."""
    used = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


def test_a_verdict_is_true_where_the_answer_is_correct():
    assert Judgement("correct")
    assert not Judgement("incorrect")


def test_hostile_answers_stay_within_their_limits_and_harm_no_neighbour():
    verifier = Verifier(seconds=SECONDS, memory_bytes=MEMORY, processes=1)
    reasons = {}
    for number, answer in enumerate([*HOSTILE, *HUGE]):
        assert verifier.verify(str(number), boxed(str(number))).correct, f"before {answer[:60]!r}"
        assert not verifier.verify(str(number), boxed(str(number + 1))).correct, f"before {answer[:60]!r}"
        before = cpu_seconds(verifier)
        reasons[answer] = verifier.verify("17", boxed(answer)).reason
        assert cpu_seconds(verifier) - before <= SECONDS + 0.25, answer[:60]
    verifier.close()
    right = {answer for answer, reason in reasons.items() if reason == "correct"}
    assert right <= {"17\x00", "\u0661\u0667"}
    assert sum(reason == "timeout" for reason in reasons.values()) >= 4
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
    verifier.close()
    assert verifier.verify("17", slow) == first
    assert verifier.verify("17", f"Differently worded: {slow}") == first
    assert not started(verifier)


def ended_at_work(ending: signal.Signals) -> str:
    """The reason of a verdict whose process was ended by a signal while it was at work."""
    slow = Verifier(seconds=2, processes=1)
    assert slow.verify("1", boxed("1")).correct
    (process,) = started(slow)
    with ThreadPoolExecutor(1) as pool:
        before = seconds_of(process)
        verdict = pool.submit(slow.verify, "17", boxed("9^{9^{9^{9}}}"))
        while seconds_of(process) < before + 0.1:
            time.sleep(0.02)
        process.send_signal(ending)
        reason = verdict.result(timeout=120).reason
    again = slow.verify("2", boxed("2")).correct and not slow.verify("2", boxed("3")).correct
    slow.close()
    assert again
    return reason


def test_a_process_that_dies_at_work_is_a_crash():
    assert ended_at_work(signal.SIGSEGV) == "crash"


def test_an_answer_whose_process_is_killed_from_outside_is_judged_again():
    """As the system does when memory is short: no verdict on the answer, so none is remembered."""
    assert ended_at_work(signal.SIGKILL) == "timeout"  # its own, from the second try


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_ends_between_answers_is_started_again_and_shifts_no_verdict(verifier, ending):
    assert verifier.verify("311", boxed(f"{ending}11")).reason == "incorrect"
    (process,) = started(verifier)
    process.send_signal(ending)
    assert verifier.verify(f"{ending}12", boxed(f"{ending}12")).correct
    assert not verifier.verify(f"{ending}13", boxed(f"{ending}12")).correct


def test_a_process_that_is_killed_again_and_again_is_an_error_and_no_verdict(monkeypatch):
    own = Verifier()
    start = own._started

    def killed() -> Any:
        worker = start()
        worker.process.kill()
        return worker

    with monkeypatch.context() as patch:
        patch.setattr(own, "_started", killed)
        with pytest.raises(InputError, match="was killed 3 times"):
            own.verify("1", boxed("1"))
    assert own.verify("1", boxed("1")).correct
    own.close()


def test_a_child_after_a_fork_has_a_process_of_its_own(verifier):
    """Both judge on at once: neither reads the answers of the other, and the child ends nothing of its parent."""
    assert verifier.verify("1001", boxed("1001")).correct
    (before,) = started(verifier)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        judged = [verifier.verify(str(n), boxed(str(n + n % 2))).correct == (n % 2 == 0) for n in range(2000, 2050)]
        own = [process.pid != before.pid for process in started(verifier)] == [True]
        verifier.close()
        os.write(writer, b"good" if all(judged) and own else b"bad!")
        os._exit(0)
    judged = [verifier.verify(str(n), boxed(str(n + n % 2))).correct == (n % 2 == 0) for n in range(3000, 3050)]
    assert all(judged)
    os.waitpid(child, 0)
    assert os.read(reader, 4) == b"good"
    assert started(verifier) == [before]
    assert verifier.verify("1002", boxed("1002")).correct


def test_the_process_inherits_no_token(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    own = Verifier()
    assert own.verify("1", boxed("1")).correct
    (process,) = started(own)
    with open(f"/proc/{process.pid}/environ", "rb") as file:
        assert b"secret" not in file.read()
    own.close()


@pytest.mark.parametrize("seconds", [0.0, 0.3, 3.0])
def test_no_process_outlives_a_killed_parent(seconds):
    """Killed while the verifier starts, and after."""
    code = """
import subprocess, threading, time
from llm_bridge.rewards.verifier import Verifier
begun = []
class Noted(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        begun.append(self.pid)
subprocess.Popen = Noted
threading.Thread(target=Verifier().verify, args=("1", r"\\boxed{1}"), daemon=True).start()
while not begun:
    time.sleep(0.001)
print(begun[0], flush=True)
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


def test_several_answers_are_judged_at_once_and_each_has_its_own_verdict():
    """While one process is held, another answers, and no third is started."""
    two = Verifier(processes=2)
    assert two.verify("1", boxed("1")).correct
    held = two._idle.get()
    with ThreadPoolExecutor(2) as pool:
        verdicts = [pool.submit(two.verify, str(n), boxed(str(n + n % 2))) for n in range(20, 30)]
        assert [verdict.result().correct for verdict in verdicts] == [n % 2 == 0 for n in range(20, 30)]
    assert len(started(two)) == 1
    two._idle.put(held)
    assert two.verify("31", boxed("31")).correct
    assert len(started(two)) == 2
    two.close()
    assert not started(two)


def test_a_process_that_an_answer_ends_leaves_its_place_to_another():
    one = Verifier(seconds=SECONDS, processes=1)
    for number in range(3):
        assert one.verify(str(number), boxed("9^{9^{9^{9}}}")).reason == "timeout"
        assert one.verify(str(number), boxed(str(number))).correct
    one.close()


def test_no_process_at_all_is_refused():
    with pytest.raises(InputError, match="processes: expected at least one, got 0"):
        Verifier(processes=0)


def test_threads_share_a_verifier(verifier):
    def judge(number: int) -> bool:
        assert threading.current_thread() is not threading.main_thread()
        return verifier.verify(str(number), boxed(str(number + number % 2))).correct

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(judge, range(100, 200))) == [number % 2 == 0 for number in range(100, 200)]


def test_the_page_tells_how_many_right_answers_of_the_pairs_are_refused():
    refused, right = (sum(field in pair and pair[field] for pair in PAIRS) for field in ("refused", "correct"))
    assert f"{refused} of {right} answers that a reader finds right are refused" in " ".join(PAGE.read_text().split())


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair['kind']}-{pair['ground_truth']}-{pair['correct']}")
def test_pairs_are_judged_as_by_a_reader(verifier, pair):
    how = {"multiple": pair["multiple"], "tolerances": pair["tolerances"]}
    judged = verifier.verify(pair["ground_truth"], pair["response"], **how).correct
    assert judged == (pair["correct"] and "refused" not in pair)
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


@pytest.mark.parametrize(
    ("library", "said"),
    [
        ("raise ModuleNotFoundError('no math_verify')", "ModuleNotFoundError: no math_verify"),
        ("raise OSError('half an installation')", "OSError: half an installation"),
        ("LatexExtractionConfig = parse = verify = None", "RuntimeError: math-verify does not find the root"),
    ],
)
def test_a_process_that_cannot_start_is_one_line(monkeypatch, tmp_path, library, said):
    (tmp_path / "math_verify.py").write_text(library)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(InputError, match=rf"the verifier does not start .*{said}") as error:
        Verifier().verify("1", boxed("1"))
    assert "\n" not in str(error.value)


def test_limits_that_cannot_be_set_are_no_verdict():
    with pytest.raises(InputError, match=r"the verifier does not start .*ValueError"):
        Verifier(memory_bytes=2.5e8).verify("1", boxed("2 - 1"))  # type: ignore[arg-type]  # not a whole number
    code = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({6 << 30}, {6 << 30}))\n"
        "from llm_bridge.rewards.verifier import Verifier\n"
        "print(Verifier(memory_bytes=8 << 30).verify('1', r'\\boxed{2 - 1}'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "the verifier does not start (ValueError" in done.stderr, done


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
