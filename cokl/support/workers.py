"""Computing many chunks in processes, on this machine or on a Ray cluster, and saving each as it ends.

Assumption beyond the paper: each process computes with one thread, so that results do not depend on the number of
cores and a busy machine does not stall on thread hand-overs.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import joblib
import pandas as pd
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from tqdm import tqdm

from cokl.support.chunks import Origin
from cokl.support.errors import InputError
from cokl.support.options import require
from cokl.support.orphans import end_with

_T = TypeVar("_T")
MOST_JOBS = 10_000
# A process that dies is replaced, unless so many die in a row without a chunk being done.
_DEATHS_IN_A_ROW = 3
_QUIET = "ignore:resource_tracker"


SECONDS_BETWEEN_LINES = 20.0
"""In a log file; a line comes with the chunk that ends after this long."""


class _Lines(tqdm):  # type: ignore[type-arg]  # a generic in its stubs only
    """A whole line each time, without the carriage returns that rewrite it on a terminal."""

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:  # type: ignore[override]
        self.fp.write(f"{self}\n")
        self.fp.flush()
        return False  # nothing on the screen that `close` would have to clear


def progress_bar(total: int, name: str, unit: str, done: int = 0, shown: bool = True) -> tqdm[Any]:
    """Counts to `total` on standard error, starting at `done`; update it as chunks end, then close it.

    shown: False keeps it silent.
    """
    common: Any = {"total": total, "initial": done, "unit": unit, "disable": not shown}
    if sys.stderr.isatty():
        return tqdm(desc=name, **common)
    return _Lines(
        desc=name,
        mininterval=SECONDS_BETWEEN_LINES,
        miniters=1,
        leave=False,
        bar_format="{desc}: {n_fmt} of {total_fmt}, {rate_fmt}, {elapsed} gone, {remaining} left",
        **common,
    )


@dataclass(frozen=True)
class Work:
    """A pure function's call whose result, a table, belongs in `path`.

    key: what tells the chunk from all others of its folder. size: what the bar counts.
    """

    function: Callable[..., pd.DataFrame]
    arguments: tuple[Any, ...]
    path: Path
    key: str
    size: int = 1


class Workers:
    """Processes that do work: `jobs` of them, by default one per usable core or, with Ray, per core of the cluster."""

    def __init__(self, backend: Literal["loky", "ray"], jobs: int | None) -> None:
        self.backend = backend
        cores = _join_ray() if backend == "ray" else usable_cores()
        self.jobs = jobs or cores

    def do(self, works: list[Work], origin: Origin, unit: str, progress: bool) -> list[pd.DataFrame]:
        """Do what is not yet in its path, and return all tables; the bar starts with what an earlier call left done.

        Raises InputError if worker processes keep dying, and whatever a chunk's function raises.
        """
        loaded = [origin.load(work.path, work.key) for work in works]
        tables = {index: table for index, table in enumerate(loaded) if table is not None}
        left = {index: work for index, work in enumerate(works) if index not in tables}
        total, done = sum(work.size for work in works), sum(works[index].size for index in tables)
        deaths = 0
        with progress_bar(total, unit, unit[:-1], done, bool(left) and progress) as bar:
            while left:
                try:
                    with _given_up_quietly(self._results(list(left.items()))) as results:
                        for index, result in results:
                            work = left.pop(index)
                            origin.save(result, work.path, work.key)
                            tables[index] = result
                            bar.update(work.size)
                            deaths = 0
                except TerminatedWorkerError as error:
                    deaths += 1
                    if deaths == _DEATHS_IN_A_ROW:
                        raise InputError(
                            f"worker processes died {deaths} times in a row, probably because memory is short; "
                            f"finished work is saved; resume with fewer --jobs than {self.jobs}"
                        ) from error
                    print("note: a worker process died; its work is done again", file=sys.stderr)
        return [tables[index] for index in range(len(works))]

    def _results(self, works: list[tuple[int, Work]]) -> Generator[tuple[int, Any], None, None]:
        """Results as they end, in any order, each with its work's index."""
        if self.backend == "ray":
            yield from self._results_on_ray(works)
        elif self.jobs == 1:
            yield from (_perform(index, work) for index, work in works)
        else:
            _silence_trackers()
            # Before a worker's first chunk, so that none outlives a driver that was killed as it started.
            with joblib.parallel_config("loky", n_jobs=self.jobs, initializer=end_with, initargs=(os.getpid(),)):
                streaming = joblib.Parallel(batch_size=1, return_as="generator_unordered")
                with _interrupts_held_back():
                    results = streaming(joblib.delayed(_perform)(*work) for work in works)
                yield from results

    def _results_on_ray(self, works: list[tuple[int, Work]]) -> Generator[tuple[int, Any], None, None]:
        """The same as tasks of the cluster, `jobs` at a time; Ray itself runs a lost worker's task again."""
        import ray

        perform = ray.remote(_perform).options(num_cpus=1, max_retries=-1)
        running = [perform.remote(*work) for work in works[: self.jobs]]
        waiting = iter(works[self.jobs :])
        while running:
            (ended, *_), running = ray.wait(running)
            running += [perform.remote(*work) for work in itertools.islice(waiting, 1)]
            try:
                yield ray.get(ended)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error


def _silence_trackers() -> None:
    """Of the processes that clean up after workers: they warn of names that are gone, after a command's last line."""
    known = os.environ.get("PYTHONWARNINGS", "")
    if _QUIET not in known:
        os.environ["PYTHONWARNINGS"] = f"{known},{_QUIET}".removeprefix(",")


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Ctrl-C waits until the end of this block, and never reaches the processes and threads that begin in it.

    A terminal sends it to the workers, too, which would print a traceback each; the command alone answers it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker  # not on Windows

    resource_tracker.ensure_running()  # where loky starts it, Python 3.11 ends this block too soon
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _given_up_quietly(results: Generator[_T, None, None]) -> Iterator[Generator[_T, None, None]]:
    """The results; those that nobody waits for any more are dropped, without joblib's warning that they are."""
    try:
        yield results
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            results.close()


def require_jobs(jobs: int | None) -> None:
    """Raises InputError for a number of processes that no machine runs."""
    if jobs is not None:
        require(jobs >= 1, "jobs", "at least 1", jobs)
        require(jobs <= MOST_JOBS, "jobs", f"at most {MOST_JOBS}", jobs)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread and without autograd inside, as before outside."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_num_threads(threads)


def _join_ray() -> int:
    """Join the Ray cluster of RAY_ADDRESS, or start one here, and return its cores. Raises InputError without Ray.

    A cluster started here listens on every interface, and only those who know its token are let in: the file
    ~/.ray/auth_token, which Ray makes, or RAY_AUTH_TOKEN. What other clusters of this machine have left in its
    temporary folder is not looked at.
    """
    address = os.environ.get("RAY_ADDRESS") or "local"
    if address == "local" and "ray" not in sys.modules:
        # Ray reads this when it is imported. Where it is already, ray.init asks for a token by default.
        os.environ["RAY_AUTH_MODE"] = "token"
    try:
        import ray
    except ImportError as error:
        raise InputError("backend: ray is not installed; in the checkout, pip install '.[cluster]'") from error
    if not ray.is_initialized():
        options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    return int(ray.cluster_resources()["CPU"])  # type: ignore[no-untyped-call]


def _perform(index: int, work: Work) -> tuple[int, pd.DataFrame]:
    with one_thread():
        return index, work.function(*work.arguments)
