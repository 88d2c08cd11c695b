"""Progress with rate and time left: a bar on a terminal, and in a log file a line now and then."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 20.0
"""In a log file; a line comes with the chunk that ends after this long."""


class _Lines(tqdm):  # type: ignore[type-arg]  # a generic in its stubs only
    """A whole line each time, without the carriage returns that rewrite it on a terminal."""

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:  # type: ignore[override]
        self.fp.write(f"{self}\n")
        self.fp.flush()
        return False  # nothing on the screen that `close` would have to clear


def progress(total: int, name: str, unit: str, done: int = 0, shown: bool = True) -> tqdm[Any]:
    """Counts to `total` on standard error, starting at `done`; update it as chunks end, then close it.

    shown: False keeps it silent.
    """
    common: Any = {"total": total, "initial": done, "unit": unit, "disable": not shown}
    if sys.stderr.isatty():
        return tqdm(desc=name, **common)
    return _Lines(
        desc=name,
        mininterval=SECONDS_BETWEEN_LINES,
        miniters=1,
        leave=False,
        bar_format="{desc}: {n_fmt} of {total_fmt}, {rate_fmt}, {elapsed} gone, {remaining} left",
        **common,
    )
