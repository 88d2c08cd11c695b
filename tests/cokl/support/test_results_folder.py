"""Results folders: one process, one configuration and one code at a time, and advice that helps."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from cokl.support.errors import InputError
from cokl.support.files import write_text
from cokl.support.results_folder import (
    describe_environment,
    digest,
    git_commit,
    open_folder,
    record_environment,
    resume_with_other_code,
)

CONFIG = {"seeds": 1, "steps": 20, "device": "cpu"}
CODE = {"bandit.sweep.train": "aaaa", "cokl.policy": "bbbb"}
CHUNK = pd.DataFrame({"p_correct": [0.5]})


def fill(folder: Path, config=CONFIG, code=CODE, keep_going=False) -> None:
    """Open the folder and leave a chunk in it."""
    with open_folder(folder, config, code, keep_going) as origin:
        origin.save(CHUNK, folder / "runs" / "chunk.parquet", "chunk")


def test_what_is_in_use_is_refused_by_name(tmp_path):
    with open_folder(tmp_path, CONFIG, CODE):
        said = f"in use by another run .process {os.getpid()} on "
        with pytest.raises(InputError, match=said), open_folder(tmp_path, CONFIG, CODE):
            pass
        code = f"""
from pathlib import Path
from cokl.support.errors import InputError
from cokl.support.results_folder import open_folder
try:
    with open_folder(Path({str(tmp_path)!r}), {CONFIG!r}, {CODE!r}):
        print("taken")
except InputError as error:
    print(error)
"""
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert f"process {os.getpid()}" in other.stdout
    fill(tmp_path)


def test_of_simultaneous_starts_with_different_configurations_one_is_accepted(tmp_path):
    for attempt in range(30):
        folder, start = tmp_path / str(attempt), threading.Barrier(4)
        accepted: list[bool] = []

        def begin(steps, folder=folder, start=start, accepted=accepted):
            start.wait()
            try:
                fill(folder, {**CONFIG, "steps": steps})
            except InputError:
                return
            accepted.append(steps)

        threads = [threading.Thread(target=begin, args=(steps,)) for steps in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = accepted
        assert json.loads((folder / "config.json").read_text())["steps"] == winner


def test_a_dead_holder_leaves_no_lock(tmp_path):
    code = f"""
import time
from pathlib import Path
from cokl.support.results_folder import open_folder
with open_folder(Path({str(tmp_path)!r}), {CONFIG!r}, {CODE!r}):
    print("held", flush=True)
    time.sleep(600)
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(InputError, match=f"process {holder.pid} "):
        fill(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    fill(tmp_path)


def test_the_lock_follows_no_symbolic_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / ".lock").symlink_to(victim)
    with pytest.raises(InputError, match="is a symbolic link"):
        fill(tmp_path / "folder")
    assert victim.read_text() == "precious"


def test_another_configuration_is_refused_only_where_there_are_results(tmp_path):
    with open_folder(tmp_path, CONFIG, CODE):
        pass  # a command that failed at once
    fill(tmp_path, {**CONFIG, "steps": 30})
    with pytest.raises(InputError, match=r"another configuration \(steps: 30 there, 20 asked for\)"):
        fill(tmp_path)


def test_other_code_is_refused_and_named(tmp_path, capsys):
    fill(tmp_path)
    newer = {**CODE, "cokl.policy": "cccc"}
    with pytest.raises(InputError, match=r"other code \(changed since: cokl.policy\); resume with --keep-going"):
        fill(tmp_path, code=newer)
    with pytest.raises(InputError, match="other code"), open_folder(tmp_path, CONFIG, newer):
        pass  # who does not say to go on is refused
    with pytest.raises(InputError, match=r"changed since: cokl.policy\)"):
        fill(tmp_path, code={name: digest for name, digest in CODE.items() if name != "cokl.policy"})  # is gone
    fill(tmp_path, code=newer, keep_going=True)
    assert "resuming with results of other code (changed since: cokl.policy)" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "junk", "[]", '{"seeds": 1'])
def test_a_damaged_configuration_is_kept_aside_and_written_again(content, tmp_path, capsys):
    fill(tmp_path)
    whole = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(content)
    fill(tmp_path)
    said = capsys.readouterr().err
    assert re.fullmatch(rf"note: .*{re.escape(str(tmp_path / 'config.json'))}.*; kept as config.json.bad\n", said)
    assert (tmp_path / "config.json").read_text() == whole
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match=r"another configuration, whose config.json is lost"):
        fill(tmp_path, {**CONFIG, "steps": 30})


def test_older_and_newer_versions_are_refused(tmp_path):
    fill(tmp_path)
    path = tmp_path / "config.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "format": 3}))
    with pytest.raises(InputError, match="newer version"):
        fill(tmp_path)
    path.write_text(json.dumps({**stored, "format": 1}))
    with pytest.raises(InputError, match="older version of this code; they can be read but not resumed"):
        fill(tmp_path)
    del stored["format"]
    path.write_text(json.dumps(stored))
    with pytest.raises(InputError, match="older version"):
        fill(tmp_path)


@pytest.mark.parametrize("result", ["sweep.parquet", "reference/0.npy", "runs/0.parquet"])
def test_any_result_holds_the_folder_to_its_configuration(result, tmp_path):
    with open_folder(tmp_path, CONFIG, CODE):
        pass
    (tmp_path / result).parent.mkdir(exist_ok=True)
    (tmp_path / result).touch()
    with pytest.raises(InputError, match="another configuration"), open_folder(tmp_path, {**CONFIG, "steps": 30}, CODE):
        pass


def test_results_that_name_no_code_are_those_of_other_code(tmp_path):
    fill(tmp_path)
    path = tmp_path / "config.json"
    stored = json.loads(path.read_text())
    del stored["code"]
    path.write_text(json.dumps(stored))
    with pytest.raises(InputError, match=r"changed since: bandit.sweep.train, cokl.policy\)"):
        fill(tmp_path)


def test_leftovers_of_a_killed_writer_are_removed(tmp_path):
    fill(tmp_path)
    leftover = tmp_path / "runs" / ".chunk.parquet.123.tmp"
    leftover.write_text("half")
    fill(tmp_path)
    assert not leftover.exists()


@pytest.mark.parametrize("name", ["x" * 300, "file/folder"])
def test_a_folder_that_cannot_be_is_named(name, tmp_path):
    (tmp_path / "file").write_text("a file")
    with pytest.raises(InputError, match=r"its name is too long|is not a folder"):
        fill(tmp_path / name)


def test_a_full_disk_is_called_that_and_leaves_the_old_file(tmp_path):
    """The limit on a file's size stands for the disk: the writer fails in the middle of a write."""
    path = tmp_path / "table"
    write_text("old", path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(InputError, match=r"cannot write to .*table: File too large"):
            write_text("new" * 10_000, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (["a"], "a"),
        (["a", "b", "c"], "a, b, c"),
        (list("abcd"), "a, b, c and 1 more"),
        (list("abcde"), "a, b, c and 2 more"),
    ],
)
def test_the_first_three_changed_modules_are_named(changed, named, tmp_path, capsys):
    with pytest.raises(InputError, match=rf"\(changed since: {named}\); resume with --keep-going"):
        resume_with_other_code(tmp_path, changed, keep_going=False)
    resume_with_other_code(tmp_path, changed, keep_going=True)
    assert capsys.readouterr().err.endswith(f"(changed since: {named})\n")


def test_the_environment_says_what_the_system_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the commit is the code's, wherever one is
    found = describe_environment("cpu")
    told = subprocess.run(["lscpu"], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"})
    (model,) = (line.partition(":")[2].strip() for line in told.stdout.splitlines() if line.startswith("Model name:"))
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    ).stdout.strip()
    assert (found["cpu"], found["device"], found["threads_per_process"]) == (model, "cpu", 1)
    assert (found["git_commit"] or "").removesuffix("-dirty") == commit


def test_outside_a_checkout_there_is_no_commit(monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert git_commit() is None


def test_a_digest_does_not_see_the_order_of_keys():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 2, "b": 1})


def test_the_seconds_spent_are_those_of_each_visit(tmp_path, monkeypatch):
    clock = iter([10.0, 12.54, 100.0, 101.0])
    monkeypatch.setattr("cokl.support.results_folder.time", SimpleNamespace(monotonic=lambda: next(clock)))
    for _ in range(2):
        with open_folder(tmp_path, CONFIG, CODE):
            pass
    assert json.loads((tmp_path / "seconds.json").read_text()) == [2.5, 1.0]


def test_a_damaged_list_of_environments_is_kept_and_named(tmp_path, capsys):
    path = tmp_path / "environment.json"
    path.write_text("[{")
    record_environment(path, "cpu", "code")
    assert (tmp_path / "environment.json.bad").read_text() == "[{"
    said = capsys.readouterr().err
    assert said.startswith("note: ")
    assert str(path) in said
    assert "remove it" not in said
    assert said.endswith("kept as environment.json.bad\n")
    assert len(json.loads(path.read_text())) == 1
