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
            yield f"{prefix}{name}", str(value)


def assumptions(page: str) -> Section:
    """ASSUMPTIONS.md as a section: its table of fields, and what is fixed in the code."""
    lines = page.splitlines()
    cells = [
        [cell.strip().replace(r"\|", "|").strip("`") for cell in line.strip("|").replace(r"\|", "\0").split("|")]
        for line in lines
        if line.startswith("|")
    ]
    rows = [[cell.replace("\0", "|") for cell in row] for row in cells]
    frame = pd.DataFrame(rows[2:], columns=rows[0])
    fixed = "".join(f"<li>{text(line.removeprefix('- ').replace('`', ''))}</li>" for line in lines if line[:2] == "- ")
    body = (
        "<p>What the paper leaves open, and what was chosen.</p>"
        f"{table(frame)}<details><summary>Fixed in the code, not configurable</summary><ul>{fixed}</ul></details>"
    )
    return Section("assumptions", "Assumptions", body)
