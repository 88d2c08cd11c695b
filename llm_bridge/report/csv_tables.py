"""CSV tables from people: read with every defect reported in one line that says where it is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from cokl.support.errors import InputError

LARGEST = 1e100
"""Of a number's size: beyond it sums and quotients may overflow, and no score lies there."""


def read_csv(path: Path, texts: Iterable[str], numbers: Iterable[str], key: Iterable[str]) -> pd.DataFrame:
    """The columns `texts` and `numbers`, in this order, and no others.

    key: columns that together name a row. Raises InputError for an unreadable file, a missing column, an empty text, a
    number beyond ±LARGEST, two rows with the same key, no rows, and a column asked for twice.
    """
    texts, numbers, key = list(texts), list(numbers), list(key)
    for index, name in enumerate(asked := [*texts, *numbers]):
        if name in asked[:index]:
            raise InputError(f"{path}: column {name!r} is asked for twice; expected different columns")
    try:
        cells = pd.read_csv(path, header=None, dtype=str, keep_default_na=False, encoding="utf-8-sig").fillna("")
    except FileNotFoundError:
        raise InputError(f"no file {path}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable CSV file: {' '.join(str(error).split())[:120]}") from error
    cells = cells.apply(lambda column: column.str.strip())
    frame = cells.iloc[1:].set_axis(cells.iloc[0].to_list(), axis=1)
    missing = [name for name in (*texts, *numbers) if name not in frame]
    if missing:
        raise InputError(f"{path}: no column {missing[0]!r}; expected {', '.join((*texts, *numbers))}")
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise InputError(f"{path}: column {twice[0]!r} is there twice")
    if frame.empty:
        raise InputError(f"{path}: no rows; expected one for each {' and '.join(key)}")
    frame = frame[[*texts, *numbers]].reset_index(drop=True)
    for name in texts:
        for row in np.flatnonzero(frame[name] == ""):
            raise InputError(f"{path}: row {row + 1} has no {name}")
    for name in numbers:
        values = pd.to_numeric(frame[name], errors="coerce").astype(float)
        for row in np.flatnonzero(~(values.abs() <= LARGEST)):
            expected = f"expected a finite number of at most {LARGEST:g}"
            raise InputError(f"{path}: row {row + 1}, {name}: {expected}, got {frame[name].iloc[row]!r}")
        frame[name] = values
    for row in np.flatnonzero(frame.duplicated(key) if key else []):
        named = ", ".join(f"{name} {frame[name].iloc[row]}" for name in key)
        raise InputError(f"{path}: row {row + 1} is a second row for {named}; expected one")
    return frame
