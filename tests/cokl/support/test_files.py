"""Files that are whole or not there: what is read back, what is refused and with which advice, and who holds a lock."""

import errno
import hashlib
import io
import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from cokl.support.errors import InputError
from cokl.support.files import (
    differences,
    hold,
    read_json,
    read_parquet,
    read_result,
    remedy,
    set_aside,
    write_atomically,
    write_parquet,
    write_result,
    write_text,
    write_with_checksum,
)

TABLE = pd.DataFrame({"method": ["none", "cokl"], "p_correct": [0.25, 0.5]}, index=[7, 9])


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "the disk is full; free some space"),
        (errno.EDQUOT, "the disk quota is used up; free some space"),
        (errno.EROFS, "read-only file system; choose another folder"),
        (errno.EACCES, "permission is denied; choose another folder"),
        (errno.ENAMETOOLONG, "its name is too long; choose another folder"),
        (errno.ENOTDIR, "a part of its path is not a folder; choose another folder"),
    ],
)
def test_an_error_of_the_system_comes_with_advice(number, advice):
    assert advice in remedy(OSError(number, "as the system calls it"))


def test_an_error_without_advice_of_its_own_says_what_the_system_said():
    assert remedy(OSError(errno.EIO, "Input/output error")) == "Input/output error; choose another folder"
    assert remedy(OSError("no number at all")) == "no number at all; choose another folder"


def test_what_is_written_is_read_back_and_folders_are_made_on_the_way(tmp_path):
    folder = tmp_path / "a" / "b"
    write_with_checksum(b"\x00\xff", folder / "bytes")
    assert (folder / "bytes").read_bytes() == b"\x00\xff"
    write_text("Größe ± ½", folder / "text")
    assert (folder / "text").read_bytes() == "Größe ± ½".encode()
    write_parquet(TABLE, folder / "table.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "table.parquet"), TABLE.reset_index(drop=True))
    pd.testing.assert_frame_equal(read_parquet(folder / "table.parquet"), TABLE.reset_index(drop=True))


def test_text_is_utf_8_in_a_plain_locale_too(tmp_path):
    writes = "import sys; from pathlib import Path; from cokl.support.files import write_text; "
    code = writes + "write_text(chr(177), Path(sys.argv[1]))"
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "text")], env=plain, check=True)
    assert (tmp_path / "text").read_bytes() == "±".encode()


def test_the_temporary_file_lies_beside_its_place_under_a_name_that_a_folder_clears(tmp_path):
    path = tmp_path / "table.parquet"
    seen = []

    def write(temporary: Path) -> None:
        seen.append(temporary)
        temporary.write_text("new")

    write_atomically(path, write)
    (temporary,) = seen
    assert temporary.parent == tmp_path
    assert temporary.match(".*.tmp")
    assert str(os.getpid()) in temporary.name
    assert [found.name for found in tmp_path.iterdir()] == ["table.parquet"]


def test_a_place_that_cannot_be_written_is_named_with_advice(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"^cannot write to .*file/table: a part of its path is not a folder; choose"):
        write_text("new", tmp_path / "file" / "table")


def test_a_results_checksum_is_one_that_sha256sum_accepts(tmp_path):
    write_result(TABLE, tmp_path / "sweep.parquet")
    check = ["sha256sum", "--check", "--strict", "sweep.parquet.sha256"]
    assert "sweep.parquet: OK" in subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    pd.testing.assert_frame_equal(read_result(tmp_path / "sweep.parquet"), TABLE.reset_index(drop=True))
    other = io.BytesIO()
    TABLE[:1].to_parquet(other)
    (tmp_path / "sweep.parquet").write_bytes(other.getvalue())
    with pytest.raises(
        InputError, match=r"sweep.parquet is damaged \(its checksum is not the one in sweep.parquet.sha256\)"
    ):
        read_result(tmp_path / "sweep.parquet")
    digest = hashlib.sha256(other.getvalue()).hexdigest()
    (tmp_path / "sweep.parquet.sha256").write_text(f"{digest} *sweep.parquet\n")
    assert len(read_result(tmp_path / "sweep.parquet")) == 1
    (tmp_path / "sweep.parquet.sha256").write_text("")
    with pytest.raises(InputError, match="is damaged"):
        read_result(tmp_path / "sweep.parquet")


def test_a_table_of_another_version_is_named_with_what_it_lacks(tmp_path):
    path = tmp_path / "sweep.parquet"
    write_result(pd.DataFrame({"seed": [0], "retired": [1.0]}), path)
    assert len(read_result(path, ("seed",))) == 1
    with pytest.raises(InputError, match=r"^\S+ lacks beta, step: another version of cokl wrote it; recompute it"):
        read_result(path, ("seed", "beta", "step"))


def test_tables_that_are_none_are_refused_in_one_line(tmp_path):
    path = tmp_path / "table.parquet"
    path.write_bytes(b"PAR1 and then\n nothing of use")
    for read in (read_parquet, read_result):
        with pytest.raises(InputError, match=r"^\S+ is damaged \(.+\); remove it and run the same command again$"):
            read(path)
        with pytest.raises(InputError, match=r"^cannot read .*missing: No such file"):
            read(tmp_path / "missing")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"damaged \(Expecting value"),
        (b"\xff\xfe", "damaged .*utf-8"),
        (b"[1]", r"damaged \(expected a dict\)"),
        (b"[" * 100_000, "damaged"),
        (b'{"a": 1', "damaged"),
    ],
)
def test_json_that_is_damaged_or_of_another_kind_is_refused(content, said, tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said) as refused:
        read_json(path, dict)
    assert "; remove it and run the same command again" in str(refused.value)


def test_json_is_read_and_a_missing_file_is_named(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"label": "±"}', encoding="utf-8")
    assert read_json(path, dict) == {"label": "±"}
    path.write_text("[1, 2]")
    assert read_json(path, list) == [1, 2]
    with pytest.raises(InputError, match=r"^cannot read .*other.json: No such file or directory$"):
        read_json(tmp_path / "other.json", dict)


def test_a_reason_is_one_line_of_bounded_length(tmp_path):
    path = tmp_path / "table"
    path.write_bytes(b"{" + b'"long key of a dictionary that never ends": 1,\n\n' * 40)
    with pytest.raises(InputError) as refused:
        read_json(path, dict)
    assert "\n" not in str(refused.value)
    reason = re.search(r"damaged \((.*)\);", str(refused.value))
    assert reason is not None
    assert 0 < len(reason[1]) <= 120


def test_what_is_set_aside_takes_the_first_free_name(tmp_path):
    path = tmp_path / "chunk"
    kept = []
    for number in range(3):
        path.write_text(str(number))
        kept.append(set_aside(path))
    assert [place.name for place in kept] == ["chunk.bad", "chunk.bad-2", "chunk.bad-3"]
    assert [place.read_text() for place in kept] == ["0", "1", "2"]
    kept[1].unlink()
    kept[1].symlink_to(tmp_path / "nowhere")
    kept[2].unlink()
    path.write_text("3")
    assert set_aside(path).name == "chunk.bad-3"
    assert kept[1].is_symlink()


def test_what_cannot_be_set_aside_is_said(tmp_path):
    with pytest.raises(InputError, match=r"^cannot rename .*gone, which is damaged: No such file or directory; choose"):
        set_aside(tmp_path / "gone")


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["a: 1 there, 2 asked for"]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, ["a.c: 2 there, 3 asked for"]),
        ({"a": 1, "b": 2}, {"c": 3, "b": 2}, ["a: 1 there, None asked for", "c: None there, 3 asked for"]),
        ({"a": {"b": 1}}, {"a": 5}, ["a: {'b': 1} there, 5 asked for"]),
        ({"a": 5}, {"a": {"b": 1}}, ["a: 5 there, {'b': 1} asked for"]),
        ([1, 2], [1, 3], [": [1, 2] there, [1, 3] asked for"]),
    ],
)
def test_differences_name_where_two_values_differ(old, new, lines):
    assert differences(old, new) == lines


def test_a_lock_says_whose_it_is_and_nobody_else_may_read_or_write_it(tmp_path):
    path = tmp_path / "folder" / ".lock"
    path.parent.mkdir()
    path.write_text("process 1 on another machine since the year dot, " * 20)
    path.chmod(0o600)
    with hold(path, "busy") as descriptor:
        assert re.fullmatch(
            rf"process {os.getpid()} on {re.escape(socket.gethostname())} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\n",
            path.read_text(),
        )
        assert os.path.sameopenfile(descriptor, os.open(path, os.O_RDONLY))
        assert not os.get_inheritable(descriptor)
    with hold(tmp_path / "new" / "deeper" / ".lock", "busy"):
        mode = stat.S_IMODE((tmp_path / "new" / "deeper" / ".lock").stat().st_mode)
        assert mode == 0o600


def test_a_lock_that_is_held_is_refused_with_its_holders_name_and_given_back(tmp_path):
    path = tmp_path / ".lock"
    with hold(path, "the folder is busy"):
        holder = path.read_text().strip()
        with pytest.raises(InputError) as refused, hold(path, "the folder is busy"):
            pass
        assert str(refused.value) == f"the folder is busy ({holder}); wait for it or end it"
        path.write_bytes(b"")
        with pytest.raises(InputError, match=r"busy \(another process\); wait"), hold(path, "busy"):
            pass
        path.write_bytes(b"\xff")
        with pytest.raises(InputError, match="busy"), hold(path, "busy"):
            pass
        path.write_bytes(b"x" * 1000)
        with pytest.raises(InputError) as refused, hold(path, "busy"):
            pass
        assert len(str(refused.value)) < 300
    with hold(path, "busy"):
        pass


def test_a_lock_is_given_back_after_an_error_inside(tmp_path):
    with pytest.raises(ZeroDivisionError), hold(tmp_path / ".lock", "busy"):
        raise ZeroDivisionError
    with hold(tmp_path / ".lock", "busy"):
        pass


def test_a_child_that_inherits_the_descriptor_holds_the_lock_too(tmp_path):
    path = tmp_path / ".lock"
    with hold(path, "busy") as descriptor:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[descriptor])
    with pytest.raises(InputError, match="busy"), hold(path, "busy"):
        pass
    child.communicate()
    with hold(path, "busy"):
        pass


def test_a_lock_in_no_folder_or_through_a_link_is_refused(tmp_path):
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    no_folder, link = tmp_path / "file" / ".lock", tmp_path / "link"
    with pytest.raises(InputError, match=r"^cannot write to .*file: a part of its path is not"), hold(no_folder, ""):
        pass
    with (
        pytest.raises(InputError, match=r"link is a symbolic link, and a lock follows none; remove it$"),
        hold(link, ""),
    ):
        pass
    assert (tmp_path / "file").read_text() == "precious"
