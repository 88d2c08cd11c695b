"""An experiment that is killed or interrupted at any moment goes on from there, and ends with the same bytes."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SWEEP = """
import dataclasses, sys
from pathlib import Path
from cokl.support.experiment import Execution
from bandit.sweep.run import run_sweep
from bandit.sweep.figures import dynamics, tradeoff
from figures import style
from tests.bandit.conftest import TINY

config = dataclasses.replace(TINY, steps=60, eval_interval=20, betas=(0.01, 0.02, 0.05, 0.1), seeds=3)
table = run_sweep(config, Execution(out=sys.argv[1], jobs=int(sys.argv[2])), progress=False)
style.save_all({"dynamics": dynamics.draw(table), "tradeoff": tradeoff.draw(table)}, Path(sys.argv[1]) / "figures")
"""
LAB = """
import dataclasses, sys
from bandit.{lab}.run import {lab}
from cokl.support.experiment import Execution
from tests.bandit.{lab}.{module} import {tiny}

config = dataclasses.replace({tiny}, seeds=2, steps=40)
{lab}(config, Execution(out=sys.argv[1], jobs=int(sys.argv[2])), progress=False)
"""
SCRIPTS = {
    "sweep": SWEEP,
    "shift": LAB.format(lab="shift", module="conftest", tiny="TINY_SHIFT"),
    "finite_group": LAB.format(lab="finite_group", module="conftest", tiny="TINY"),
    "sequences": LAB.format(lab="sequences", module="test_train", tiny="TINY"),
}


def begin(experiment: str, folder: Path, jobs: int) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPTS[experiment], str(folder), str(jobs)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def descendants(pid: int) -> list[int]:
    """The processes below a process, from the system's table."""
    try:
        children = [int(c) for path in Path(f"/proc/{pid}/task").glob("*/children") for c in path.read_text().split()]
    except FileNotFoundError:  # ended in the meantime
        return []
    return children + [below for child in children for below in descendants(child)]


def require_ended(pids: list[int]) -> None:
    """Each of the processes ends by itself soon."""
    deadline = time.monotonic() + 60
    while alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, f"still there: {alive}"
        time.sleep(0.1)


def pieces(folder: Path) -> list[Path]:
    """What a run has saved of its work, before the tables that come at the end."""
    return [path for path in folder.rglob("*.parquet") if path.parent.name in ("reference", "runs")]


def results(folder: Path) -> dict[str, bytes]:
    """The tables, the figures and every piece."""
    kept = [*folder.rglob("*.parquet"), *folder.glob("figures/*")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


@pytest.fixture(
    scope="module", params=["sweep", *(pytest.param(name, marks=pytest.mark.soak) for name in [*SCRIPTS][1:])]
)
def uninterrupted(request, tmp_path_factory) -> tuple[str, dict[str, bytes], float]:
    """An experiment, what it leaves when nothing happens, and the seconds that it takes."""
    folder, started = tmp_path_factory.mktemp("whole"), time.monotonic()
    process = begin(request.param, folder, 1)
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    return request.param, results(folder), time.monotonic() - started


def kill_and_go_on(uninterrupted, folder: Path, kills: int, seed: int) -> None:
    """Start, kill with SIGKILL at a random moment, and so on `kills` times, the last with a piece saved; let it end."""
    experiment, expected, seconds = uninterrupted
    draw = random.Random(seed)
    kept: dict[Path, int] = {}
    for number in range(kills):
        process = begin(experiment, folder, 1 + number % 2)
        time.sleep(draw.uniform(0.3, 1.0) * seconds)
        while number == kills - 1 and not pieces(folder) and process.poll() is None:
            time.sleep(0.05)
        children = descendants(process.pid)
        process.kill()
        process.communicate()
        require_ended(children)
        for path, times in kept.items():
            assert path.stat().st_mtime_ns == times, "what was done has been done again"
        kept = {path: path.stat().st_mtime_ns for path in pieces(folder)}
    assert kept
    process = begin(experiment, folder, 1)
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    assert b"kept as" not in errors
    assert results(folder) == expected
    for path, times in kept.items():
        assert path.stat().st_mtime_ns == times
    assert list(folder.rglob("*.tmp")) == []


def test_killed_three_times(uninterrupted, tmp_path):
    kill_and_go_on(uninterrupted, tmp_path, 3, seed=1)


@pytest.mark.soak
def test_killed_twenty_times(uninterrupted, tmp_path):
    kill_and_go_on(uninterrupted, tmp_path, 20, seed=2)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_says_how_to_go_on_and_leaves_no_process(ending, tiny_flags, tmp_path):
    flags = [*tiny_flags, "--methods", "none,forward_kl,cokl", "--betas", "0.01,0.1", "--seeds", "9", "--steps", "2000"]
    command = [sys.executable, "-m", "cokl_cli", "bandit", "sweep", *flags, "--jobs", "2", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    while not list((tmp_path / "runs").glob("*.parquet")) and process.poll() is None:
        time.sleep(0.05)
    children = descendants(process.pid)
    assert len(children) >= 2
    started = time.monotonic()
    os.killpg(process.pid, ending)  # as a terminal does: the workers get it, too
    _, errors = process.communicate(timeout=120)
    print(f"ended after {time.monotonic() - started:.2f} s")
    assert process.returncode == 128 + ending
    *_, last = errors.decode().splitlines()
    assert last.startswith("cokl: interrupted; finished work is saved; resume with: cokl bandit sweep")
    assert last.endswith(f"--out {tmp_path}")
    assert "Traceback" not in errors.decode()
    assert "Warning" not in errors.decode()
    require_ended(children)
    assert list((tmp_path / "runs").glob("*.parquet"))


def test_workers_leave_an_interrupt_to_the_command(tiny_flags, tmp_path):
    """A terminal sends Ctrl-C to all; a worker that heeded it would print a traceback or die, wherever it is."""
    flags = [*tiny_flags, "--methods", "none,cokl", "--betas", "0.1", "--seeds", "3"]
    command = [sys.executable, "-m", "cokl_cli", "bandit", "sweep", *flags, "--jobs", "2", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    interrupted: set[int] = set()
    while process.poll() is None and not (tmp_path / "environment.json").is_file():  # git's lock would stay behind
        time.sleep(0.01)
    while process.poll() is None:  # from a worker's first moment on, before it has loaded anything
        for worker in descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):  # one that has ended since it was listed
                os.kill(worker, signal.SIGINT)
                interrupted.add(worker)
        time.sleep(0.01)
    _, errors = process.communicate()
    assert len(interrupted) >= 2
    assert "Traceback" not in errors.decode()
    assert "a worker process died" not in errors.decode()
    assert process.returncode == 0, errors.decode()


@pytest.mark.soak
def test_two_thousand_sweeps_in_one_process_leave_nothing_behind():
    """Memory within 5% after the first 200, and no more threads, file handles or temporary files."""
    import dataclasses
    import tempfile

    from bandit.sweep.run import run_sweep
    from cokl.support.experiment import Execution
    from tests.bandit.conftest import TINY

    config = dataclasses.replace(TINY, seeds=1, methods=("none", "cokl"), betas=(0.1,), steps=2, eval_interval=2)

    def state() -> tuple[int, int, int]:
        """Threads, open files, temporary files."""
        threads, files, temporary = (
            len(os.listdir(of)) for of in ("/proc/self/task", "/proc/self/fd", tempfile.gettempdir())
        )
        return threads, files, temporary

    def resident() -> int:
        """MiB of memory."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") >> 20

    for _ in range(200):
        run_sweep(config, Execution(jobs=1), progress=False)
    before, memory = state(), resident()
    for _ in range(1800):
        run_sweep(config, Execution(jobs=1), progress=False)
    print(f"{memory} MiB, then {resident()} MiB; {before}, then {state()}")
    assert state()[:2] == before[:2]
    assert state()[2] <= before[2] + 5  # other programs use that folder, too
    assert resident() < 1.05 * memory
