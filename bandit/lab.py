"""What a lab is to everything that iterates over labs: the command line, the page and the logbook.

A lab is a package whose module `lab` has a `LAB`, made of `config` (a frozen dataclass and its presets), `train`,
`analysis` and `figures`. `bandit.labs.LABS` lists those of this package; another package's is named by an entry point.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from cokl.support.errors import InputError
from cokl.support.files import read_parquet, write_text
from cokl.support.options import from_json
from cokl.support.results import Execution, differences, read_config
from cokl.support.statistics import csv_text, markdown_table
from cokl.support.verdicts import Claim, no_verdict, withheld
from figures.marks import Drawing

Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Analysis:
    """What the tables of a lab's results say, as it is shown on the screen, in results.md and on the page.

    Pictures are no part of it: `Lab.draw` makes them from it.

    Args:
        answer: a sentence with the number that the lab is run for, and the rival that it is measured against.
        seeds: reported seeds; below four there are no verdicts.
        claims: every claim that the results allow to be judged.
        tables: numbers by file name, each with NAME_half_width beside a mean; written as CSV.
        captions: of those tables that people read, by file name; the first is the one that opens.
        readable: a table as people read it.
        screen: rows for a terminal.
        notes: paragraphs above the table on a terminal, and at the head of the page.
        picture: file name of the figure to look at first; "" without one.
        titles: of tables with captions, in a few words, by which the page folds them; their captions where left out.
        diverged: a sentence on runs that diverged, for the pictures; "" if there are none.
        scored: what the pictures show and no table has.
    """

    answer: str
    seeds: int
    claims: Sequence[Claim]
    tables: Tables
    captions: Mapping[str, str]
    readable: Callable[[pd.DataFrame], pd.DataFrame]
    screen: pd.DataFrame
    notes: Sequence[str] = ()
    picture: str = ""
    titles: Mapping[str, str] = field(default_factory=dict)
    diverged: str = ""
    scored: Any = None

    def __post_init__(self) -> None:
        names = [claim.name for claim in self.claims]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"claims: expected a name for each, got {twice[0]!r} for two")


@dataclass(frozen=True)
class Lab:
    """A lab: its configurations, and the functions that make, score and draw its results.

    Args:
        title: of its section on the page and in the logbook.
        summary: its command's help.
        presets: configurations by name, "paper" and "quick" among them.
        results: the tables that a finished folder holds, by name, with the columns that each must have.
        train: computes what `Execution.out` lacks, saves each table there as NAME.parquet, and returns them.
        analyse: scores the tables, once.
        draw: pictures by file name, of what was scored.
        within: folders of a finished one that may hold further results of this lab, of the same settings but for the
            methods, which are shown with it and take part in no claim.
    """

    title: str
    summary: str
    presets: Mapping[str, Any]
    results: Mapping[str, Sequence[str]]
    train: Callable[[Any, Execution], Tables]
    analyse: Callable[[Tables, Any], Analysis]
    draw: Callable[[Analysis], Mapping[str, Drawing]]
    within: Sequence[str] = ()

    def read(self, folder: Path) -> tuple[dict[str, pd.DataFrame], Any]:
        """The tables and the configuration of finished results, those of `within` among them.

        Raises InputError if `folder` has none, or they are damaged, lack a column, or are another lab's.
        """
        for name in self.results:
            if not (folder / f"{name}.parquet").is_file():
                raise InputError(f"{folder} holds no finished results: {name}.parquet is not there")
        tables = {name: read_parquet(folder / f"{name}.parquet", columns) for name, columns in self.results.items()}
        return tables | self.read_within(folder), self.config(folder)

    def config(self, folder: Path) -> Any:
        """The configuration whose results `folder` holds. Raises InputError if it cannot be read."""
        return from_json(type(self.presets["paper"]), read_config(folder))

    def read_within(self, folder: Path) -> dict[str, pd.DataFrame]:
        """The tables of `within` that `folder` has, as "FOLDER/NAME".

        Raises InputError as `read` does, and for settings other than the folder's own, methods apart: no table compares
        runs of unlike settings.
        """
        tables: dict[str, pd.DataFrame] = {}
        for name in (name for name in self.within if self.holds(folder / name)):
            inner, there = self.read(folder / name)
            within, around = (config.as_dict() | {"methods": ()} for config in (there, self.config(folder)))
            if within != around:
                raise InputError(
                    f"{folder / name} holds results of other settings than {folder}, beside which they would be shown "
                    f"({'; '.join(differences(within, around))}); move or remove {folder / name}"
                )
            tables |= {f"{name}/{table}": rows for table, rows in inner.items()}
        return tables

    def holds(self, folder: Path) -> bool:
        """Whether `folder` has finished results of this lab."""
        return all((folder / f"{name}.parquet").is_file() for name in self.results)


def write(analysis: Analysis, title: str, folder: Path) -> None:
    """Each table as FOLDER/NAME.csv, and the answer, verdicts and readable tables as FOLDER/results.md."""
    for name, table in analysis.tables.items():
        write_text(csv_text(table), folder / f"{name}.csv")
    parts = [f"# {title}", f"**{analysis.answer}.**", *analysis.notes]
    claims = withheld(analysis.claims, analysis.seeds)
    if claims:
        parts += ["## Claims", no_verdict(analysis.seeds)]
    for claim in claims:
        parts.append(f"### {claim.statement}" + (f": {claim.verdict}" if claim.verdict else ""))
        parts.append("\n".join(f"- {line}" for line in claim.lines))
    for name, caption in analysis.captions.items():
        rows = analysis.tables[name]
        shown = "No such runs."
        if len(rows):
            shown = markdown_table(analysis.readable(rows).rename(columns=lambda name: name.replace("_", " ")))
        parts += [f"## {name}.csv", caption, shown.rstrip("\n")]
    write_text("\n\n".join(part for part in parts if part) + "\n", folder / "results.md")


def on_screen(analysis: Analysis, folder: Path) -> str:
    """For a terminal: the answer, notes, a table, and where everything is."""
    paragraphs = [f"{analysis.answer}.", no_verdict(analysis.seeds), *analysis.notes]
    width = min(100, shutil.get_terminal_size((100, 0)).columns)
    lines = [textwrap.fill(paragraph, width) for paragraph in paragraphs if paragraph]
    lines += ["", analysis.screen.to_string(index=False), ""] if len(analysis.screen) else [""]
    if analysis.picture:
        lines.append(f"Figure: {folder / 'figures' / analysis.picture}.png")
    return "\n".join([*lines, f"Everything: {folder / 'results.md'}", f"Next: cokl report --results {folder}"])
