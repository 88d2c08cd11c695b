"""A table that knows which cells to mark, for the screen, Markdown and CSV.

Assumption beyond the paper: ranks are those of the numbers as printed, so that equal printed numbers share a mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from cokl import methods
from cokl.support.files import write_atomically, write_text
from cokl.support.statistics import plain_markdown_table
from llm_bridge.experiment.config import BASE

HEADERS = {
    "model": "Model",
    "method": "Method",
    "beta": "beta",
    "kl_prompts": "KL prompts",
    "math_val": "MATH-Val",
    "math500": "MATH500",
    "olympiad": "Olympiad",
    "math_avg": "Math Avg.",
    "chat_val": "Chat-Val",
    "overall": "Overall",
    "groups": "Groups",
    "zero_correct": "Zero-correct (%)",
    "at_least_one": "At least one correct (%)",
    "first_step_seconds": "First step (s)",
    "mean_length": "Mean length (tokens)",
}
_FORMATS = {"beta": "g", "kl_prompts": "g", "groups": ",.0f", "first_step_seconds": ".1f", "mean_length": ",.0f"}


method_label = partial(methods.label, own={BASE: "Base"})
"""How a method is called in tables and figures."""


@dataclass(frozen=True)
class Table:
    """Rows with text columns `model` and `method`, and numbers.

    ranked: columns whose best and second-best numbers, the higher the better, are marked among the rows of the same
    `within` whose method is not in `anchors`. notes: what a reader must know, such as what is missing.
    """

    name: str
    title: str
    frame: pd.DataFrame
    ranked: tuple[str, ...] = ()
    within: tuple[str, ...] = ("model",)
    anchors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def cells(self) -> pd.DataFrame:
        """Every cell as text, without marks."""
        text = self.frame.copy()
        for name in text:
            if name == "method":
                text[name] = text[name].map(method_label)
            elif name != "model":
                text[name] = [f"{value:{_FORMATS.get(str(name), 'z.2f')}}" for value in text[name]]
        return text.astype(object)

    def marks(self) -> pd.DataFrame:
        """ "best", "second" or "" for every cell."""
        marks = pd.DataFrame("", index=self.frame.index, columns=self.frame.columns)
        competing = self.cells()[~self.frame["method"].isin(self.anchors)]
        for name in self.ranked:
            printed = competing[name].astype(float).groupby([competing[key] for key in self.within])
            ranks = printed.rank(method="min", ascending=False)
            for mark, rank in (("best", 1), ("second", 2)):
                marks.loc[ranks.index[ranks == rank], name] = mark
        return marks


def _marked(table: Table, forms: Mapping[str, str]) -> list[list[str]]:
    """The header and the rows as text, each cell in the form of its mark."""
    header = [HEADERS.get(str(name), str(name)) for name in table.frame]
    rows = [
        [forms.get(mark, "{}").format(text) for text, mark in zip(texts, marks, strict=True)]
        for texts, marks in zip(table.cells().to_numpy(), table.marks().to_numpy(), strict=True)
    ]
    return [header, *rows]


def _padded(rows: list[list[str]]) -> list[tuple[str, ...]]:
    """Cells of equal width in each column; the numbers, which come after model and method, to the right."""
    columns = [
        [f"{cell:{'<' if place < 2 else '>'}{max(map(len, column))}}" for cell in column]
        for place, column in enumerate(zip(*rows, strict=True))
    ]
    return list(zip(*columns, strict=True))


def to_screen(table: Table) -> str:
    """Aligned text; the best number has a star, the second-best a plus."""
    lines = [table.title]
    if len(table.frame):
        header, *rows = _marked(table, {"": "{} ", "best": "{}*", "second": "{}+"})
        lines += ["  ".join(row).rstrip() for row in _padded([[f"{cell} " for cell in header], *rows])]
        if table.ranked:
            without = " and ".join(map(method_label, table.anchors))
            lines.append("* best, + second best" + (f" (without {without})" if without else ""))
    return "\n".join([*lines, *(f"note: {note}" for note in table.notes)]) + "\n"


def to_markdown(table: Table) -> str:
    """A section with the table; best bold, second-best underlined."""
    lines = [f"## {table.title}", ""]
    if len(table.frame):
        header, *rows = _padded(_marked(table, {"best": "**{}**", "second": "<u>{}</u>"}))
        dashes = ["-" * len(cell) for cell in header]
        rule = [f" {dash} " if place < 2 else f" {dash[1:]}: " for place, dash in enumerate(dashes)]
        lines += [plain_markdown_table(header, rows, rule), ""]
    return "\n".join([*lines, *(f"Note: {note}\n" for note in table.notes)])


def write_tables(tables: Sequence[Table], folder: Path) -> None:
    """tables.txt and tables.md with all tables, and NAME.csv with every digit of each."""
    for suffix, render in (("txt", to_screen), ("md", to_markdown)):
        write_text("\n".join(map(render, tables)), folder / f"tables.{suffix}")
    for table in tables:
        write_atomically(folder / f"{table.name}.csv", partial(table.frame.to_csv, index=False))
