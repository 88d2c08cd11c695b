"""Files that are written whole or not at all, and read back with an error that says what to do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cokl.support.errors import InputError


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
        raise InputError(f"cannot write to {path}: {error.strerror or error}; choose another folder") from error


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write a table atomically."""
    write_atomically(path, lambda temporary: frame.to_parquet(temporary, index=False))


def write_text(text: str, path: Path) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_parquet(path: Path) -> pd.DataFrame:
    """A table of ours. Raises InputError if the file is damaged."""
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error


def read_array(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """An array of ours. Raises InputError if the file is damaged or of another shape."""
    try:
        array: np.ndarray = np.load(path)
        if array.shape != shape:
            raise ValueError(f"expected shape {shape}, got {array.shape}")
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path, error) from error
    return array


def read_json(path: Path, kind: type) -> Any:
    """A JSON file of ours holding a `kind`. Raises InputError if it is damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, kind):
            raise ValueError(f"expected a {kind.__name__}")
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error
    return value


def _damaged(path: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())[:120]
    return InputError(f"{path} is damaged ({reason}); remove it and run the same command again")


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two JSON values differ, as "path: old there, new asked for"."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        return [line for key in keys for line in differences(old.get(key), new.get(key), f"{path}.{key}".lstrip("."))]
    return [] if old == new else [f"{path}: {old} there, {new} asked for"]
