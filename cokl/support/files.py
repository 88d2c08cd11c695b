"""Files: written whole or not at all, and read back with an error that says what to do."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Callable, Collection, Iterator
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


def require_writable(path: Path) -> None:
    """Raises InputError unless a file can be made at `path`; its folder is made."""
    write_atomically(path.with_name(f".{path.name}"), lambda temporary: temporary.touch())
    path.with_name(f".{path.name}").unlink()


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


AGAIN = "remove it and run the same command again"


def read_json(path: Path, shape: Any, remedy: str = AGAIN) -> Any:
    """The content of a JSON file.

    shape: what it must be: a type; {name: shape} for an object that has these names, {str: shape} for one of any names;
    [shape] for a list, [shape, ...] for one that is not empty. Raises InputError, with `remedy`, if it is another, or
    damaged, or cannot be read.
    """
    text = read_text(path)
    try:
        value = json.loads(text)
        _require_shape(value, shape, "it")
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error, remedy) from error
    return value


def _require_shape(value: Any, shape: Any, place: str) -> None:
    """Raises ValueError, which names the first place that is not of the shape."""
    match shape:
        case dict():
            _require_shape(value, dict, place)
            wanted = {name: shape[str] for name in value} if str in shape else shape
            for name, part in wanted.items():
                if name not in value:
                    raise ValueError(f"{place} lacks {name!r}")
                _require_shape(value[name], part, name)
        case [part, *rest]:
            _require_shape(value, list, place)
            if rest and not value:
                raise ValueError(f"{place} is empty")
            for one in value:
                _require_shape(one, part, f"one of {place}")
        case _ if not isinstance(value, shape):
            raise ValueError(f"{place}: expected {getattr(shape, '__name__', shape)}, got {value!s:.40}")


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


def _damaged(path: Path, reason: object, remedy: str = AGAIN) -> InputError:
    one_line = " ".join(str(reason).split())[:120]
    return InputError(f"{path} is damaged ({one_line}); {remedy}")


@contextlib.contextmanager
def locked(path: Path, in_use: str) -> Iterator[None]:
    """Hold a lock file, which is made with its folder and stays.

    On a file system without flock the file itself is the lock, with its holder's process and machine in it. It outlives
    a holder that has died on another machine.

    Raises InputError, which begins with `in_use`, if another process holds it, and where files cannot be locked.
    """
    from filelock import FileLock, Timeout  # the command line's help does without

    lock = FileLock(path, timeout=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is no flock
            lock.acquire()
    except Timeout as error:
        with contextlib.suppress(OSError, ValueError):
            process, machine = path.read_text(encoding="utf-8").split()[:2]
            in_use += f", process {process} on {machine}"
        raise InputError(f"{in_use}; wait for it or end it; if it died on another machine, remove {path}") from error
    except (OSError, NotImplementedError) as error:  # the latter from older versions of filelock
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot use {path.parent}: {reason}; choose another folder, which can be written and has locks"
        ) from error
    try:
        yield
    finally:
        lock.release()
