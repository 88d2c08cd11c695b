"""A results folder and the processes that fill it: order, saving, one thread, errors, and what it says of itself."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
import torch

from cokl.support import results
from cokl.support.errors import InputError
from cokl.support.files import read_parquet, write_parquet
from cokl.support.results import Execution, Work, compute, one_thread

CONFIG = {"seeds": 2, "device": "cpu"}


def works(folder: Path, function, count: int) -> list[Work]:
    return [Work(function, (n,), folder / f"{n}.parquet", n) for n in range(1, count + 1)]


def test_two_processes_give_tables_in_order_and_save_each(tmp_path):
    def made(number):
        import os
        import time

        time.sleep(0.5 if number == 1 else 0)
        threads, grad = torch.get_num_threads(), torch.is_grad_enabled()
        return pd.DataFrame({"n": [number], "process": [os.getpid()], "threads": [threads], "grad": [grad]})

    tables = compute(works(tmp_path, made, 4), Execution(jobs=2), "runs", progress=False)
    joined = pd.concat(tables)
    assert joined["n"].tolist() == [1, 2, 3, 4]
    assert os.getpid() not in set(joined["process"])
    assert (joined["threads"] == 1).all()
    assert not joined["grad"].any()
    for number, table in enumerate(tables, 1):
        pd.testing.assert_frame_equal(read_parquet(tmp_path / f"{number}.parquet"), table)


def test_what_is_done_is_not_done_again(tmp_path):
    called = []

    def made(number):
        called.append(number)
        return pd.DataFrame({"n": range(number)})

    some = works(tmp_path, made, 3)
    write_parquet(pd.DataFrame({"n": range(2)}), some[1].path)
    tables = compute(some, Execution(jobs=1), "runs", progress=False)
    assert called == [1, 3]
    assert [len(table) for table in tables] == [1, 2, 3]
    compute(some, Execution(jobs=1), "runs", progress=False)
    assert called == [1, 3]


def test_an_error_in_a_work_is_raised_and_what_ended_before_is_saved(tmp_path):
    def made(number):
        if number == 2:
            raise ZeroDivisionError
        return pd.DataFrame({"n": [number]})

    with pytest.raises(ZeroDivisionError):
        compute(works(tmp_path, made, 3), Execution(jobs=1), "runs", progress=False)
    assert [path.name for path in tmp_path.glob("*.parquet")] == ["1.parquet"]


def test_a_process_that_dies_is_one_line_that_says_what_to_do(tmp_path):
    def made(number):
        import os

        os._exit(9)

    with pytest.raises(InputError, match=r"a worker process died.*resume with fewer --jobs"):
        compute(works(tmp_path, made, 3), Execution(jobs=2), "runs", progress=False)


@pytest.mark.nightly
def test_ray_gives_the_same_tables(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def made(number):
        return pd.DataFrame({"n": [number], "threads": [torch.get_num_threads()]})

    tables = compute(works(tmp_path, made, 3), Execution(jobs=2, backend="ray"), "runs", progress=False)
    assert pd.concat(tables)["n"].tolist() == [1, 2, 3]


def test_a_folder_says_with_what_and_how_long_it_was_made_and_lists_another_environment(tmp_path, monkeypatch):
    with Execution(out=tmp_path).results_folder(CONFIG) as folder:
        assert folder == tmp_path
    assert json.loads((tmp_path / "config.json").read_text()) == CONFIG
    (first,) = json.loads((tmp_path / "environment.json").read_text())
    assert first["versions"]["torch"] == str(torch.__version__)
    assert first["seconds"] >= 0
    with Execution(out=tmp_path).results_folder(CONFIG):
        pass
    assert len(json.loads((tmp_path / "environment.json").read_text())) == 1
    monkeypatch.setattr(results, "git_commit", lambda: "another")
    with Execution(out=tmp_path).results_folder(CONFIG):
        pass
    assert [one["git_commit"] for one in json.loads((tmp_path / "environment.json").read_text())][1:] == ["another"]


def test_the_seconds_of_a_run_that_resumes_are_added_to_those_before_it(tmp_path):
    record = tmp_path / "environment.json"
    for before in (0.0, 7200.0, 100.0):
        if record.exists():
            (made,) = json.loads(record.read_text())
            record.write_text(json.dumps([{**made, "seconds": before}]))
        with Execution(out=tmp_path).results_folder(CONFIG):
            pass
        (made,) = json.loads(record.read_text())
        assert before <= made["seconds"] < before + 60  # entering a folder takes no minute


def test_an_environment_is_told_from_what_the_machine_says(tmp_path):
    told = results.describe_environment("cpu")
    packages = told.pop("versions")
    assert packages.pop("python") == ".".join(map(str, sys.version_info[:3]))
    assert packages == {name: vars(import_module(name))["__version__"] for name in packages}
    head = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    here = Path(__file__).parent
    commit = subprocess.run(head, cwd=here, capture_output=True, text=True, check=False).stdout.strip() or None
    assert told == {
        "platform": platform.platform(),
        "cpu": results.cpu_model(),
        "cpu_count": os.cpu_count(),
        "threads_per_process": 1,
        "device": "cpu",
        "git_commit": commit,
    }


def test_a_folder_that_lost_its_configuration_is_not_resumed_with_another(tmp_path):
    with Execution(out=tmp_path).results_folder(CONFIG):
        pass
    (tmp_path / "config.json").unlink()
    with pytest.raises(InputError, match="has lost its config"), Execution(out=tmp_path).results_folder(CONFIG):
        pass


@pytest.mark.parametrize("jobs", [0, -3, 10_001])
def test_numbers_of_processes_that_no_machine_runs_are_refused(jobs, tmp_path):
    folder = Execution(out=tmp_path, jobs=jobs).results_folder(CONFIG)
    with pytest.raises(InputError, match=f"^jobs: expected 1 to 10000, got {jobs}$"), folder:
        pass


def test_a_folder_that_cannot_be_made_is_named_with_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    folder = Execution(out=tmp_path / "file" / "below").results_folder(CONFIG)
    with pytest.raises(InputError, match=r"cannot use .*file.*choose another folder"), folder:
        pass


def test_threads_and_autograd_are_given_back_whatever_happens_inside():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
            assert not (torch.ones(1, requires_grad=True) * 2).requires_grad
        with pytest.raises(ZeroDivisionError), one_thread():
            raise ZeroDivisionError
        assert torch.get_num_threads() == 2
        assert (torch.ones(1, requires_grad=True) * 2).requires_grad
    finally:
        torch.set_num_threads(before)


def test_a_long_value_that_differs_is_cut():
    (line,) = results.differences({"names": ["a" * 50] * 100}, {"names": []})
    assert line.startswith("names: ['aaa")
    assert line.endswith("... there, [] asked for")
    assert len(line) < 300


def test_what_one_of_two_values_alone_has_differs():
    """As the code of a regularizer of one's own, which only the newer of two runs has."""
    assert results.differences({"a": 1}, {"a": 1, "b": {"c": 2}}) == ["b: None there, {'c': 2} asked for"]
    assert results.differences({"a": 1, "b": 2}, {"a": 1}) == ["b: 2 there, None asked for"]
