"""Files: written whole or not at all, and read back with an error that says what to do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cokl.support.errors import InputError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it into place. Raises InputError if that fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write to {path}: {error.strerror or error}; free its disk or choose another folder"
        ) from error


def write_text(text: str, path: Path) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write a table atomically, with Parquet's checksum of each page."""
    write_atomically(path, lambda temporary: frame.to_parquet(temporary, index=False, write_page_checksum=True))


def read_parquet(path: Path, columns: Collection[str] = ()) -> pd.DataFrame:
    """A Parquet table. Raises InputError if it cannot be read, is damaged or empty, or lacks one of `columns`."""
    import pyarrow as pa  # takes half a second to load with pandas, and the command line reads JSON alone
    import pyarrow.parquet as pq

    try:
        # No thread of Arrow's: they let go of the bytes late, and a process that ends then aborts (apache/arrow#33975).
        content = pa.BufferReader(path.read_bytes())
        file = pq.ParquetFile(content, pre_buffer=False, page_checksum_verification=True)
        table: pd.DataFrame = file.read(use_threads=False).to_pandas(use_threads=False)
    except OSError as error:
        if error.filename:
            raise InputError(f"cannot read {path}: {error.strerror}") from error
        raise _damaged(path, error) from error
    except Exception as error:  # whatever a parser makes of damaged bytes
        raise _damaged(path, error) from error
    if table.empty:
        raise InputError(f"{path} has no rows; fill it or remove it")
    missing = [name for name in columns if name not in table]
    if missing:
        raise InputError(f"{path} lacks the column {missing[0]!r}; it has {', '.join(map(str, table.columns))}")
    return table


def read_json(path: Path, kind: type) -> Any:
    """The content of a JSON file, a `kind`. Raises InputError if it is damaged or cannot be read."""
    text = read_text(path)
    try:
        value = json.loads(text)
        if not isinstance(value, kind):
            raise ValueError(f"expected a {kind.__name__}")
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    return value


def read_text(path: Path) -> str:
    """The content of a text file. Raises InputError if it cannot be read or is no UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputError(f"cannot read {path}: {error.strerror}{did_you_mean(path.name, beside)}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected text in UTF-8 ({error.reason})") from error


def _damaged(path: Path, reason: object) -> InputError:
    one_line = " ".join(str(reason).split())[:120]
    return InputError(f"{path} is damaged ({one_line}); remove it and run the same command again")
