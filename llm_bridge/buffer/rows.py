"""One row per response: the Arrow schema of what a buffer is brought as and stored as, and the door that keeps to it.

A value of another type is refused and never converted. Text and lists may have 64-bit offsets, as pandas writes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cokl.support.errors import InputError

SCHEMA = pa.schema(
    {
        "prompt": pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})),
        "data_source": pa.string(),
        "ground_truth": pa.string(),
        "ground_truth_is_json": pa.bool_(),
        "extra_info": pa.string(),
        "prompt_ids": pa.list_(pa.int64()),
        "response_ids": pa.list_(pa.int64()),
        "response_mask": pa.list_(pa.bool_()),
        "reward": pa.float64(),
    }
)
"""Nothing is null. docs/how-to/verl.md says what each column holds."""
OF_PROMPT = SCHEMA.names[:6]
"""Equal in all rows of a prompt."""


def read_rows(path: Path, required: Collection[str]) -> pa.Table:
    """The rows of a Parquet file, if they are of SCHEMA.

    Args:
        path: of the file.
        required: columns that it must have; the others of SCHEMA may be missing.

    Returns:
        The columns that the file has, in SCHEMA's order, with the file's metadata.

    Raises:
        InputError: another format, a column that is missing, unknown or of another type, or what `check_rows` refuses.
    """
    table = read_table(path)
    names = table.column_names
    for name in names:
        if name not in SCHEMA.names or names.count(name) > 1:
            expected = f"one of each of {', '.join(SCHEMA.names)} and no other"
            prompts = "" if "response_ids" in names else "; a file of prompts is no buffer"
            raise InputError(f"{path}, column {name!r}: expected {expected}{prompts}")
    kept = [name for name in SCHEMA.names if name in names]
    if missing := [name for name in SCHEMA.names if name in required and name not in kept]:
        raise InputError(f"{path} lacks the column {missing[0]!r}; it has {', '.join(kept) or 'none'}")
    for name in kept:
        expected, got = SCHEMA.field(name).type, table.schema.field(name).type
        if _narrow(got) != expected:
            raise InputError(f"{path}, column {name!r}: expected {expected}, got {str(got)[:120]}")
    schema = pa.schema([SCHEMA.field(name) for name in kept], metadata=table.schema.metadata)
    table = table.select(kept).cast(schema)
    check_rows(table, str(path))
    return table


def read_table(path: Path) -> pa.Table:
    """A whole Parquet file.

    Args:
        path: of the file.

    Returns:
        All of its columns, with its metadata.

    Raises:
        InputError: another format, or a file that is damaged.
    """
    try:
        with path.open("rb") as file:
            parquet = file.read(4) == b"PAR1"
        reader = pq.ParquetFile(path, page_checksum_verification=True) if parquet else None
        table = reader.read(use_threads=False) if reader else pa.table({})  # as `cokl.support.files` reads
        table.validate(full=True)
        table = table.combine_chunks()
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
        raise InputError(f"{path}: expected a whole Parquet file ({reason}); make it again") from error
    if not parquet:
        how = "another format; `cokl llm rollouts` converts what VeRL and TRL write"
        got = how if path.stat().st_size else "an empty one; make it again"
        raise InputError(f"{path}: expected a Parquet file, got {got}")
    return table


def check_rows(table: pa.Table, source: str) -> None:
    """Refuse values that no buffer can have.

    Args:
        table: columns of SCHEMA, of which all but `response_ids` may be missing.
        source: what the rows are of, for the message.

    Raises:
        InputError: no rows, or a value that is refused, with its column and row.
    """
    if not len(table):
        raise InputError(f"{source}: expected at least one row, got none")
    for name, expected, good in _conditions({name: table[name].combine_chunks() for name in table.column_names}):
        if (row := pc.index(good, False).as_py()) >= 0:
            got = repr(table[name][row].as_py())
            raise InputError(f"{source}, column {name!r}, row {row}: expected {expected}, got {got[:80]}")


def _conditions(columns: dict[str, pa.Array]) -> Iterator[tuple[str, str, pa.Array]]:
    """Column, what is expected of it, and whether a row is so; each holds only where those before it do."""
    for name, column in columns.items():
        yield name, "no null", _whole(column)
    lengths = {name: pc.list_value_length(column) for name, column in columns.items() if pa.types.is_list(column.type)}
    for name, length in lengths.items():
        yield name, "at least one", pc.greater(length, 0)
        if name in ("prompt_ids", "response_ids"):
            yield name, "token ids >= 0", _every(columns[name], lambda ids: pc.greater_equal(ids, 0))
        elif name != "prompt":
            yield name, "one for each of response_ids", pc.equal(length, lengths["response_ids"])
    if (mask := columns.get("response_mask")) is not None:
        yield "response_mask", "true on at least one token", pc.invert(_every(mask, pc.invert))
    if (reward := columns.get("reward")) is not None:
        yield "reward", "a finite number", pc.is_finite(reward)
    if (told := columns.get("extra_info")) is not None:
        objects = [isinstance(_parsed(text), dict) for text in told.to_pylist()]
        yield "extra_info", "a JSON object as Python's json.dumps writes it", pa.array(objects)
    if (encoded := columns.get("ground_truth_is_json")) is not None:
        truths = zip(columns["ground_truth"].to_pylist(), encoded.to_pylist(), strict=True)
        good = pa.array([not is_json or not isinstance(_parsed(text), str | None) for text, is_json in truths])
        yield "ground_truth", "JSON as Python's json.dumps writes it, of something else than text", good


def _whole(column: pa.Array) -> pa.Array:
    """Whether a row has no null, also not inside."""
    whole = column.is_valid()
    if pa.types.is_list(column.type):
        whole = pc.and_(whole, _every(column, _whole))
    elif pa.types.is_struct(column.type):
        for child in column.flatten():
            whole = pc.and_(whole, _whole(child))
    return whole


def _every(lists: pa.ListArray, good: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Whether all of a row's elements are good."""
    result = np.ones(len(lists), dtype=bool)
    result[pc.list_parent_indices(lists).filter(pc.invert(good(lists.flatten()))).to_numpy()] = False
    return pa.array(result)


def _parsed(text: str) -> Any:
    """The value of JSON, if json.dumps writes it with the same characters, else None."""
    try:
        value = json.loads(text)
        return value if json.dumps(value, allow_nan=False) == text else None
    except (ValueError, RecursionError):
        return None


def _narrow(kind: pa.DataType) -> pa.DataType:
    """The type of the same values with 32-bit offsets and every field nullable."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_narrow(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _narrow(field.type)) for field in kind])
    return kind
