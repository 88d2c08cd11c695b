"""Chunks in processes: results in order, saved as they end, with one thread, done once."""

import os
import re

import pandas as pd
import pytest
import torch

from cokl.support.chunks import Origin
from cokl.support.errors import InputError
from cokl.support.files import read_result
from cokl.support.workers import MOST_JOBS, Work, Workers, one_thread, require_jobs, usable_cores


@pytest.fixture
def origin(tmp_path) -> Origin:
    return Origin(tmp_path, "config", "code")


def works(origin: Origin, function, count: int) -> list[Work]:
    return [Work(function, (n,), origin.folder / f"{n}.parquet", f"chunk {n}", n) for n in range(1, count + 1)]


def test_two_processes_give_tables_in_order_and_save_each(origin):
    def chunk(number):
        import os
        import time

        time.sleep(0.5 if number == 1 else 0)
        return pd.DataFrame(
            {
                "n": [number],
                "process": [os.getpid()],
                "threads": [torch.get_num_threads()],
                "grad": [torch.is_grad_enabled()],
            }
        )

    tables = Workers("loky", 2).do(works(origin, chunk, 4), origin, "chunks", progress=False)
    joined = pd.concat(tables)
    assert joined["n"].tolist() == [1, 2, 3, 4]
    assert os.getpid() not in set(joined["process"])
    assert joined["process"].nunique() == 2
    assert (joined["threads"] == 1).all()
    assert not joined["grad"].any()
    for number, table in enumerate(tables, 1):
        pd.testing.assert_frame_equal(read_result(origin.folder / f"{number}.parquet"), table)
        assert origin.load(origin.folder / f"{number}.parquet", f"chunk {number}") is not None


def test_what_is_done_is_not_done_again_and_the_bar_starts_there(origin, capsys):
    called = []

    def chunk(number):
        called.append(number)
        return pd.DataFrame({"n": range(number)})

    some = works(origin, chunk, 3)
    origin.save(pd.DataFrame({"n": range(2)}), some[1].path, some[1].key)
    tables = Workers("loky", 1).do(some, origin, "runs", progress=True)
    assert called == [1, 3]
    assert [len(table) for table in tables] == [1, 2, 3]
    assert all(table["n"].tolist() == list(range(len(table))) for table in tables)
    shown = re.findall(r"run.?: (\d+) of (\d+), .*?(run\S*)/?", capsys.readouterr().err)
    assert shown[0][:2] == ("2", "6")
    assert shown[-1][:2] == ("6", "6")
    Workers("loky", 1).do(some, origin, "runs", progress=True)
    assert called == [1, 3]
    assert capsys.readouterr().err == ""


def test_an_error_in_a_chunk_is_raised_and_earlier_chunks_are_saved(origin):
    def chunk(number):
        if number == 2:
            raise ZeroDivisionError
        return pd.DataFrame({"n": [number]})

    with pytest.raises(ZeroDivisionError):
        Workers("loky", 1).do(works(origin, chunk, 3), origin, "chunks", progress=False)
    assert [path.name for path in origin.folder.glob("*.parquet")] == ["1.parquet"]


def test_the_number_of_processes_is_that_asked_for_or_the_cores_that_may_be_used(monkeypatch):
    assert usable_cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")  # as where there is none
    for counted, usable in ((7, 7), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda counted=counted: counted)
        assert usable_cores() == usable
    monkeypatch.undo()
    assert Workers("loky", None).jobs == usable_cores()
    assert Workers("loky", 3).jobs == 3
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize("jobs", [None, 1, MOST_JOBS])
def test_numbers_of_processes_that_a_machine_may_run(jobs):
    require_jobs(jobs)


@pytest.mark.parametrize(
    ("jobs", "expected"), [(0, "at least 1"), (-3, "at least 1"), (MOST_JOBS + 1, "at most 10000")]
)
def test_numbers_of_processes_that_no_machine_runs_are_refused(jobs, expected):
    with pytest.raises(InputError, match=f"^jobs: expected {expected}, got {jobs}$"):
        require_jobs(jobs)


def test_threads_and_autograd_are_given_back_whatever_happens_inside():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
            assert not (torch.ones(1, requires_grad=True) * 2).requires_grad
        assert torch.get_num_threads() == 2
        with pytest.raises(ZeroDivisionError), one_thread():
            raise ZeroDivisionError
        assert torch.get_num_threads() == 2
        assert (torch.ones(1, requires_grad=True) * 2).requires_grad
    finally:
        torch.set_num_threads(before)
