"""Files: written whole or not at all, read back with an error that says what to do, or locked by one process."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cokl.support.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

# What the system says, and what helps.
_REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up; free some space and run the same command again",
    errno.EROFS: "it lies on a read-only file system; choose another folder",
    errno.EACCES: "permission is denied; choose another folder or change its permissions",
    errno.EPERM: "permission is denied; choose another folder or change its permissions",
    errno.ENAMETOOLONG: "its name is too long; choose another folder",
    errno.ENOTDIR: "a part of its path is not a folder; choose another folder",
    errno.EEXIST: "a part of its path is not a folder; choose another folder",
}


def remedy(error: OSError) -> str:
    """What an error of the system means for the user, and what to do."""
    return _REMEDIES.get(error.errno or 0, f"{error.strerror or error}; choose another folder")


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
        raise InputError(f"cannot write to {path}: {remedy(error)}") from error


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write a table atomically."""
    write_atomically(path, lambda temporary: frame.to_parquet(temporary, index=False))


def write_text(text: str, path: Path) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_with_checksum(content: bytes, path: Path) -> None:
    """Write a file atomically, and beforehand its checksum to PATH.sha256, a file for `sha256sum --check`."""
    write_text(f"{hashlib.sha256(content).hexdigest()}  {path.name}\n", checksum_of(path))
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def checksum_error(content: bytes, path: Path) -> str:
    """What is wrong with the checksum beside a file with this content; "" if it is the content's."""
    checksum = checksum_of(path)
    if not checksum.is_file():
        return f"{checksum.name} is missing"
    stored = _read(checksum).split()[:1]
    same = stored == [hashlib.sha256(content).hexdigest().encode()]
    return "" if same else f"its checksum is not the one in {checksum.name}"


def write_result(frame: pd.DataFrame, path: Path) -> None:
    """Write a table with its checksum."""
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    write_with_checksum(buffer.getvalue(), path)


def read_result(path: Path, columns: Collection[str] = ()) -> pd.DataFrame:
    """A table or chunk with its checksum beside it, or one that an older version wrote without.

    columns: that it must have, others being free. Raises InputError if it is damaged or another version wrote it.
    """
    content = _read(path)
    if checksum_of(path).is_file() and (error := checksum_error(content, path)):
        raise _damaged(path, error)
    table = _parse_parquet(content, path)
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise InputError(
            f"{path} lacks {', '.join(missing)}: another version of cokl wrote it; recompute it in another folder, "
            "with the settings in its config.json"
        )
    return table


def read_parquet(path: Path, columns: Collection[str] = ()) -> pd.DataFrame:
    """A Parquet table. Raises InputError if the file is damaged or cannot be read, or lacks one of the columns."""
    table = _parse_parquet(_read(path), path)
    missing = [name for name in columns if name not in table]
    if missing:
        raise InputError(f"{path} lacks the column {missing[0]!r}; it has {', '.join(map(str, table.columns))}")
    return table


def read_json(path: Path, kind: type) -> Any:
    """The content of a JSON file, a `kind`. Raises InputError if it is damaged or cannot be read."""
    content = _read(path)
    try:
        value = json.loads(content.decode("utf-8"))
        if not isinstance(value, kind):
            raise ValueError(f"expected a {kind.__name__}")
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    return value


def read_text(path: Path) -> str:
    """The content of a text file. Raises InputError if it cannot be read or is no UTF-8."""
    try:
        return _read(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected text in UTF-8 ({error.reason})") from error


def set_aside(path: Path) -> Path:
    """Rename a file or folder that cannot be used to NAME.bad, NAME.bad-2 and so on; returns the new path.

    Raises InputError if the system does not let it be renamed.
    """
    names = (path.with_name(f"{path.name}.bad" + (f"-{number}" if number > 1 else "")) for number in range(1, 10**6))
    kept = next(name for name in names if not os.path.lexists(name))
    try:
        os.rename(path, kept)
    except OSError as error:
        raise InputError(f"cannot rename {path}, which is damaged: {remedy(error)}") from error
    return kept


def checksum_of(path: Path) -> Path:
    """The file beside `path` that holds its checksum."""
    return path.with_name(f"{path.name}.sha256")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _parse_parquet(content: bytes, path: Path) -> pd.DataFrame:
    import pandas as pd  # takes half a second to load, and the command line reads JSON alone
    import pyarrow as pa

    try:
        # No thread of Arrow's: they let go of `content` late, and a process that ends then aborts (apache/arrow#33975).
        return pd.read_parquet(pa.BufferReader(content), use_threads=False, pre_buffer=False)
    except (
        Exception
    ) as error:  # whatever a parser makes of damaged bytes: OSError, ValueError, KeyError, TypeError, ...
        raise _damaged(path, error) from error


def _damaged(path: Path, reason: object) -> InputError:
    one_line = " ".join(str(reason).split())[:120]
    return InputError(f"{path} is damaged ({one_line}); remove it and run the same command again")


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two JSON values differ, as "path: old there, new asked for"."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        return [line for key in keys for line in differences(old.get(key), new.get(key), f"{path}.{key}".lstrip("."))]
    return [] if old == new else [f"{path}: {old} there, {new} asked for"]


def json_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as JSON values; what is missing or not finite is null."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return rows


@contextmanager
def hold(path: Path, busy: str) -> Iterator[int]:
    """Lock the file `path`, made if need be, and give its descriptor; the name of the process is written into it.

    A child that inherits the descriptor holds the lock too. Raises InputError, `busy` with the holder's name, while
    another process holds it; also for a symbolic link, and where no file can be made.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InputError(f"{path} is a symbolic link, and a lock follows none; remove it") from error
        raise InputError(f"cannot write to {path.parent}: {remedy(error)}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            raise InputError(f"{busy} ({holder}); wait for it or end it") from None
        name = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, name.encode(), 0)
        except OSError as error:
            raise InputError(f"cannot write to {path}: {remedy(error)}") from error
        yield descriptor
    finally:
        os.close(descriptor)
