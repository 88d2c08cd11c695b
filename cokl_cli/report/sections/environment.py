"""What made each result: its configuration, and the machine, versions and commit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from cokl.support.files import read_json
from figures.page import Section, table, text


def section(folders: Iterable[Path]) -> Section:
    """A block per results folder that recorded its environment; the last record where there are several."""
    blocks = []
    for folder in dict.fromkeys(folders):
        if not (folder / "environment.json").exists():
            continue
        *earlier, last = read_json(folder / "environment.json", list)
        rows = pd.DataFrame(_flat(last), columns=["", "value"])
        note = f"<p>{len(earlier)} earlier environment(s) are in the file.</p>" if earlier else ""
        config = json.dumps(read_json(folder / "config.json", dict), indent=1)
        blocks.append(
            f"<details><summary>{text(folder)}</summary>{note}{table(rows)}"
            f"<h4>Configuration</h4><pre tabindex='0'>{text(config)}</pre></details>"
        )
    return Section("environment", "What made these results", "".join(blocks) or "<p>Nothing was recorded.</p>")


def _flat(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}".replace("_", " "), str(value)
