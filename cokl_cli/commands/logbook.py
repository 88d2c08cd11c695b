"""The command `cokl logbook`. Heavy imports are inside `run`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from cokl.support.errors import InputError
from cokl.support.files import read_json, write_text


@dataclass(frozen=True)
class Logbook:
    """Write REPRODUCTION.md: each claim of the paper with its verdict, primary measurement, command and time."""

    results: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR")] = ()
    """Folders with results, which replace the logbook's entries of the same experiments."""
    out: Path = Path()
    """Folder of REPRODUCTION.md and of REPRODUCTION.json, whose other entries are kept."""
    replace: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Let results of other seeds or settings take the place of an entry."""

    def run(self) -> int:
        """Read the results, write both files, and say which experiments are new in them.

        Raises InputError for an entry of another scope that would be replaced without `replace`.
        """
        from cokl_cli.report.logbook import NOT_RUN, PAGE, RECORD, RECORDED, listed, records, render

        path = self.out / RECORD
        remedy = "restore it from a copy, or give another --out and all results"
        kept = read_json(path, {str: RECORDED}, remedy) if path.is_file() else {}
        made = records(self.results)
        told = ("scope", "command")
        others = [name for name in made if name in kept and any(made[name][key] != kept[name][key] for key in told)]
        if others and not self.replace:
            there, here = (" by ".join(book[others[0]][key] for key in told) for book in (kept, made))
            raise InputError(f"{path} has {others[0]} with {there}, these results have {here}; --replace takes them")
        book = {name: {**kept, **made}[name] for name in listed() if name in kept or name in made}
        write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", path)
        write_text(render(book), self.out / PAGE)
        for name, source in listed().items():
            state = "from these results" if name in made else "as it was" if name in kept else NOT_RUN
            if name in others:
                state += f" ({made[name]['scope']}), in place of others ({kept[name]['scope']})"
            print(f"{source.title}: {state}")
        print(f"written to {self.out / PAGE}")
        return 0
