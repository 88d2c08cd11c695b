"""Chunks of a results folder: self-describing checkpoints in Parquet, verified before resuming.

A chunk's footer holds, under "cokl", a JSON object: the format, digests of the configuration and of the code, the
chunk's key, its rows, and its cells that are not finite. Its checksum stands beside it, as a finished table's does, and
is compared before anything parses the file.
"""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from cokl.support.errors import InputError
from cokl.support.files import checksum_error, remedy, set_aside, write_with_checksum

FORMAT = 2
"""Of a results folder; 1 had a chunk's checksum in its footer."""
_FOOTER = b"cokl"


class BadChunk(Exception):
    """A file is not the chunk that it should be; the message says how."""


@dataclass(frozen=True)
class Origin:
    """A results folder, and the digests of the configuration and the code that its chunks are made with.

    keep_going: whether chunks of other code are used as they are.
    """

    folder: Path
    config: str
    code: str
    keep_going: bool = False

    def load(self, path: Path, key: str) -> pd.DataFrame | None:
        """The chunk in `path`, or None if there is none; any other file is renamed, with a note on stderr.

        Raises InputError for a chunk of a newer version or of other code, and for a file that cannot be read.
        """
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except IsADirectoryError:
            self._refuse(path, "it is a folder")
            return None
        except OSError as error:
            raise InputError(f"cannot read {path}: {remedy(error)}") from error
        try:
            identity = _verified(content, path)
            _require_same(identity, {"config": self.config, "key": key})
            if identity["code"] != self.code and not self.keep_going:
                raise InputError(f"{path} was made by other code; resume with --keep-going, or choose another --out")
            table: pd.DataFrame = pd.read_parquet(pa.BufferReader(content), use_threads=False, pre_buffer=False)
            _require_same(identity, _counts(table))
        except BadChunk as error:
            self._refuse(path, str(error))
            return None
        return table

    def save(self, table: pd.DataFrame, path: Path, key: str) -> None:
        """Write the chunk with this key, and its checksum. Raises InputError if that fails."""
        identity = {"format": FORMAT, "config": self.config, "code": self.code, "key": key, **_counts(table)}
        write_with_checksum(_parquet(table, identity), path)

    def _refuse(self, path: Path, reason: str) -> None:
        kept = set_aside(path)
        message = f"{path.relative_to(self.folder)} is not what was saved there ({reason})"
        print(f"note: {message}; kept as {kept.name}, computed again", file=sys.stderr)


def made_from(path: Path) -> str | None:
    """The digest of the configuration that a chunk was made from; None if it is damaged."""
    try:
        return str(_verified(path.read_bytes(), path)["config"])
    except (OSError, BadChunk, InputError):
        return None


def _counts(table: pd.DataFrame) -> dict[str, int]:
    numbers = table.select_dtypes("number").to_numpy(dtype=np.float64, na_value=np.nan)
    return {"rows": len(table), "not_finite": int((~np.isfinite(numbers)).sum())}


def _parquet(table: pd.DataFrame, identity: dict[str, Any]) -> bytes:
    """The table as Parquet, with its identity in the footer."""
    arrow, buffer = pa.Table.from_pandas(table, preserve_index=False), io.BytesIO()
    with pq.ParquetWriter(buffer, arrow.schema) as writer:
        writer.write_table(arrow)
        writer.add_key_value_metadata({_FOOTER: json.dumps(identity)})
    return buffer.getvalue()


def _verified(content: bytes, path: Path) -> dict[str, Any]:
    """The identity of an undamaged chunk. Raises BadChunk, and InputError for a newer format."""
    if error := checksum_error(content, path):
        raise BadChunk(error)
    footer = pq.read_metadata(io.BytesIO(content)).metadata or {}
    if _FOOTER not in footer:
        raise BadChunk("it is another table")
    identity: dict[str, Any] = json.loads(footer[_FOOTER])
    if identity["format"] > FORMAT:
        raise InputError(
            f"this folder was written by a newer version of this code (format {identity['format']}, known: {FORMAT}); "
            "use that version, or choose another --out"
        )
    return identity


def _require_same(identity: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        if identity[name] != value:
            raise BadChunk(f"another {name}: {identity[name]} instead of {value}")
