"""Chunks: whatever happens to a saved file, it is never taken for what was saved."""

import io
import json
import random
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cokl.support.chunks import Origin
from cokl.support.errors import InputError
from cokl.support.files import read_result, write_result, write_with_checksum
from cokl.support.workers import Work, Workers

TABLE = pd.DataFrame({"method": ["none", "cokl"] * 3, "step": range(6), "p_correct": np.linspace(0.1, 0.6, 6)})
KEY = "cokl at beta 0.1, seed 0"


@pytest.fixture
def origin(tmp_path) -> Origin:
    return Origin(tmp_path, "config", "code")


def test_a_chunk_comes_back_as_it_was_and_any_parquet_reader_opens_it(origin, tmp_path):
    path = tmp_path / "runs" / "chunk.parquet"
    origin.save(TABLE, path, KEY)
    loaded = origin.load(path, KEY)
    assert loaded is not None
    pd.testing.assert_frame_equal(loaded, TABLE)
    pd.testing.assert_frame_equal(pd.read_parquet(path), TABLE)
    pd.testing.assert_frame_equal(read_result(path), TABLE)
    identity = json.loads(pq.read_metadata(path).metadata[b"cokl"])
    assert (identity["config"], identity["code"], identity["key"], identity["rows"]) == ("config", "code", KEY, 6)
    assert origin.load(tmp_path / "runs" / "other.parquet", KEY) is None


def test_a_chunk_says_how_many_of_its_numbers_are_not_finite(origin, tmp_path):
    path = tmp_path / "chunk.parquet"
    origin.save(TABLE.assign(p_correct=[np.nan, np.inf, 0.3, 0.4, 0.5, 0.6]), path, KEY)
    assert json.loads(pq.read_metadata(path).metadata[b"cokl"])["not_finite"] == 2


def test_no_flipped_bit_is_taken_for_the_chunk(origin, tmp_path, capsys):
    """Every byte of a chunk once, one random bit of it each time."""
    path, draw = tmp_path / "chunk.parquet", random.Random(0)
    origin.save(TABLE, path, KEY)
    content = path.read_bytes()
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        assert origin.load(path, KEY) is None
        (tmp_path / "chunk.parquet.bad").unlink()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(content)
    assert all(line.startswith("note: chunk.parquet is not what was saved there (") for line in lines)


def edit(path, **changes) -> None:
    """Let a chunk's footer say something else, with a checksum that is right again."""
    table = pq.read_table(path)
    identity = {**json.loads(pq.read_metadata(path).metadata[b"cokl"]), **changes}
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, table.schema) as writer:
        writer.write_table(pa.Table.from_pandas(table.to_pandas()[: changes.get("rows", 6) - 1 or None]))
        writer.add_key_value_metadata({"cokl": json.dumps(identity)})
    write_with_checksum(buffer.getvalue(), path)


_WRONG = "its checksum is not the one in chunk.parquet.sha256"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(b""), _WRONG),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), _WRONG),
        (lambda path: (path.unlink(), path.mkdir()), "it is a folder"),
        (TABLE[:3].to_parquet, _WRONG),
        (lambda path: write_result(TABLE, path), "it is another table"),
        (lambda path: path.with_name("chunk.parquet.sha256").unlink(), "chunk.parquet.sha256 is missing"),
        (lambda path: path.with_name("chunk.parquet.sha256").write_text("junk"), _WRONG),
        (edit, "another rows: 6 instead of 5"),
        (lambda path: Origin(path.parent, "config", "code").save(TABLE, path, "seed 1"), "another key"),
        (lambda path: Origin(path.parent, "lr 1", "code").save(TABLE, path, KEY), "another config: lr 1"),
        (lambda path: shutil.copy(_with_nan(path), path), _WRONG),
    ],
)
def test_what_is_not_the_chunk_is_kept_aside_and_said(damage, reason, origin, tmp_path, capsys):
    path = tmp_path / "chunk.parquet"
    origin.save(TABLE, path, KEY)
    damage(path)
    assert origin.load(path, KEY) is None
    assert not path.exists()
    assert (tmp_path / "chunk.parquet.bad").exists()
    (line,) = capsys.readouterr().err.splitlines()
    import re

    assert re.search(reason, line), line
    assert line.endswith("kept as chunk.parquet.bad, computed again")


def _with_nan(path):
    other = path.with_name("nan.parquet")
    TABLE.assign(p_correct=np.nan).to_parquet(other)
    return other


def test_every_bad_file_is_kept(origin, tmp_path):
    path = tmp_path / "chunk.parquet"
    for _ in range(3):
        path.write_text("junk")
        origin.load(path, KEY)
    assert {kept.name for kept in tmp_path.iterdir()} == {f"chunk.parquet.bad{suffix}" for suffix in ("", "-2", "-3")}


def test_other_code_stops_unless_asked_to_keep_going(origin, tmp_path):
    path = tmp_path / "chunk.parquet"
    Origin(tmp_path, "config", "older").save(TABLE, path, KEY)
    with pytest.raises(InputError, match="made by other code; resume with --keep-going"):
        origin.load(path, KEY)
    assert path.exists()
    loaded = Origin(tmp_path, "config", "code", keep_going=True).load(path, KEY)
    assert loaded is not None
    pd.testing.assert_frame_equal(loaded, TABLE)


def test_a_newer_format_is_refused(origin, tmp_path):
    path = tmp_path / "chunk.parquet"
    origin.save(TABLE, path, KEY)
    edit(path, format=3)
    with pytest.raises(InputError, match="written by a newer version"):
        origin.load(path, KEY)
    assert path.exists()


def test_bad_chunks_are_done_again(origin, tmp_path):
    works = [Work(lambda n: TABLE[:n], (n,), tmp_path / f"{n}.parquet", str(n)) for n in (1, 2, 3)]
    for _ in range(2):
        tables = Workers("loky", 1).do(works, origin, "chunks", progress=False)
        assert [len(table) for table in tables] == [1, 2, 3]
        works[1].path.write_text("junk")
    assert (tmp_path / "2.parquet.bad").read_text() == "junk"


def test_a_result_whose_bits_changed_is_refused(tmp_path):
    path, draw = tmp_path / "sweep.parquet", random.Random(1)
    write_result(TABLE, path)
    pd.testing.assert_frame_equal(read_result(path), TABLE)
    content = path.read_bytes()
    for _ in range(200):
        flipped = bytearray(content)
        flipped[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(InputError, match="is damaged"):
            read_result(path)
    path.write_bytes(content)
    (tmp_path / "sweep.parquet.sha256").unlink()
    pd.testing.assert_frame_equal(read_result(path), TABLE)
