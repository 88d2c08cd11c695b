"""Files that are whole or not there: what is read back, and what is refused with which advice."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from cokl.support.errors import InputError
from cokl.support.files import (
    read_json,
    read_parquet,
    write_atomically,
    write_parquet,
    write_text,
)
from llm_bridge.buffer.rows import read_rows

TABLE = pd.DataFrame({"method": ["none", "cokl"], "p_correct": [0.25, 0.5]}, index=[7, 9])


def test_what_is_written_is_read_back_and_folders_are_made_on_the_way(tmp_path):
    folder = tmp_path / "a" / "b"
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


def test_the_temporary_file_lies_beside_its_place_and_is_gone_at_the_end(tmp_path):
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
    with pytest.raises(InputError, match=r"^cannot write to .*file/table: (Not a dir|File exists).*; free its disk or"):
        write_text("new", tmp_path / "file" / "table")


def test_tables_that_are_none_are_refused_in_one_line(tmp_path):
    path = tmp_path / "table.parquet"
    path.write_bytes(b"PAR1 and then\n nothing of use")
    with pytest.raises(InputError, match=r"^\S+ is damaged \(.+\); remove it and run the same command again$"):
        read_parquet(path)
    with pytest.raises(InputError, match=r"^cannot read .*missing: No such file"):
        read_parquet(tmp_path / "missing")
    pd.DataFrame({"seed": []}).to_parquet(path)
    with pytest.raises(InputError, match=r"^\S+ has no rows; fill it or remove it"):
        read_parquet(path)


@pytest.mark.parametrize("read", [read_parquet, lambda path: read_rows(path, ())])
def test_a_number_that_changed_on_disk_is_refused(read, tmp_path):
    """A bit that makes another number of it, and no other damage: the page's checksum alone says so."""
    path, value = tmp_path / "table.parquet", 0.123456789
    write_parquet(pd.DataFrame({"response_ids": [[1]], "reward": [value]}), path)
    content = path.read_bytes()
    place = content.index(struct.pack("<d", value))
    assert len(read(path)) == 1
    path.write_bytes(content[:place] + struct.pack("<d", 0.5) + content[place + 8 :])
    assert pq.read_table(path)["reward"].to_pylist() == [0.5]
    with pytest.raises(InputError):
        read(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"damaged \(Expecting value"),
        (b"[1]", r"damaged \(it: expected dict, got \[1\]\)"),
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


SHAPE = {"label": str, "rows": [{"seed": int | None}, ...], "more": {str: list}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"rows": [{"seed": 1}], "more": {}}', "it lacks 'label'"),
        ('{"label": 1, "rows": [{"seed": 1}], "more": {}}', "label: expected str, got 1"),
        ('{"label": "", "rows": [], "more": {}}', "rows is empty"),
        ('{"label": "", "rows": [{"seed": 1}, {}], "more": {}}', "one of rows lacks 'seed'"),
        ('{"label": "", "rows": [{"seed": 1}, 2], "more": {}}', "one of rows: expected dict, got 2"),
        ('{"label": "", "rows": [{"seed": "x"}], "more": {}}', r"seed: expected int \| None, got x"),
        ('{"label": "", "rows": [{"seed": 1}], "more": {"any": 3}}', "any: expected list, got 3"),
    ],
)
def test_json_of_another_shape_is_refused_at_its_place(content, said, tmp_path):
    path = tmp_path / "record.json"
    path.write_text(content)
    with pytest.raises(InputError, match=rf"record.json is damaged \({said}\); ask$"):
        read_json(path, SHAPE, "ask")
    path.write_text('{"label": "", "rows": [{"seed": null}], "more": {"any": []}, "unknown": 1}')
    assert read_json(path, SHAPE)["unknown"] == 1


def test_json_is_read_and_a_missing_file_is_named(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"label": "±"}', encoding="utf-8")
    assert read_json(path, dict) == {"label": "±"}
    path.write_text("[1, 2]")
    assert read_json(path, list) == [1, 2]
    with pytest.raises(InputError, match=r"^cannot read .*other.json: No such file or directory$"):
        read_json(tmp_path / "other.json", dict)
