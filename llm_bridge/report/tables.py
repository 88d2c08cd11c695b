"""A table that knows which cells to mark, for the screen, Markdown, LaTeX and CSV.

Assumption beyond the paper: ranks are those of the numbers as printed, so that equal printed numbers share a mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from cokl import methods
from cokl.support.files import write_atomically, write_text
from cokl.support.statistics import plain_markdown_table
from llm_bridge.experiment.config import BASE, MATH_SETS
from llm_bridge.report.results import REPEATED

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
HEADERS |= {
    f"{name}_{key}": f"{HEADERS.get(name, name)} {said}" for name in MATH_SETS for key, said in REPEATED.items()
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


def _marked(table: Table, mark: Mapping[str, Callable[[str], str]], escape: Callable[[str], str]) -> list[list[str]]:
    """The header and the rows as text, with marked cells put through `mark`."""
    header = [escape(HEADERS.get(str(name), str(name))) for name in table.frame]
    rows = [
        [mark.get(kind, str)(escape(text)) for text, kind in zip(texts, kinds, strict=True)]
        for texts, kinds in zip(table.cells().to_numpy(), table.marks().to_numpy(), strict=True)
    ]
    return [header, *rows]


def _padded(table: Table, rows: list[list[str]]) -> list[list[str]]:
    """Cells of equal width in each column, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = [name in ("model", "method") for name in table.frame]
    return [
        [cell.ljust(size) if text else cell.rjust(size) for cell, size, text in zip(row, widths, left, strict=True)]
        for row in rows
    ]


def to_screen(table: Table) -> str:
    """Aligned text; the best number has a star, the second-best a plus."""
    lines = [table.title]
    if len(table.frame):
        header, *rows = _marked(table, {"": "{} ".format, "best": "{}*".format, "second": "{}+".format}, str)
        padded = _padded(table, [[f"{cell} " for cell in header], *rows])
        lines += ["  ".join(row).rstrip() for row in padded]
        if table.ranked:
            without = " and ".join(map(method_label, table.anchors))
            lines.append("* best, + second best" + (f" (without {without})" if without else ""))
    return "\n".join([*lines, *(f"note: {note}" for note in table.notes)]) + "\n"


def to_markdown(table: Table) -> str:
    """A section with the table; best bold, second-best underlined."""
    lines = [f"## {table.title}", ""]
    if len(table.frame):
        marks = {"best": "**{}**".format, "second": "<u>{}</u>".format}
        header, *rows = _padded(table, _marked(table, marks, str))
        rule = [f" {'-' * len(cell)} " if key in ("model", "method") else f" {'-' * (len(cell) - 1)}: "
                for key, cell in zip(table.frame, header, strict=True)]  # fmt: skip
        lines += [plain_markdown_table(header, rows, rule), ""]
    return "\n".join([*lines, *(f"Note: {note}\n" for note in table.notes)])


def to_latex(table: Table) -> str:
    """A table environment for booktabs; best bold, second-best underlined, a rule between models."""
    caption = _escape_latex(". ".join((table.title, *table.notes)))
    if table.frame.empty:
        return f"% {caption}\n"
    header, *rows = _marked(
        table, {"best": "\\textbf{{{}}}".format, "second": "\\underline{{{}}}".format}, _escape_latex
    )
    lines, previous = [], None
    for model, row in zip(table.frame["model"], rows, strict=True):
        lines += ["\\midrule"] if model != previous else []
        lines.append(" & ".join(row) + " \\\\")
        previous = model
    layout = "".join("l" if name in ("model", "method") else "r" for name in table.frame)
    return "\n".join(
        [
            "\\begin{table*}[t]", "\\centering", "\\small",
            f"\\begin{{tabular}}{{{layout}}}", "\\toprule", " & ".join(header) + " \\\\", *lines, "\\bottomrule",
            "\\end{tabular}", f"\\caption{{{caption}.}}", f"\\label{{tab:{table.name}}}", "\\end{table*}", "",
        ]
    )  # fmt: skip


_LATEX = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}


def _escape_latex(text: str) -> str:
    text = re.sub(r"[&%$#_{}\\~^]", lambda match: _LATEX.get(match[0], "\\" + match[0]), text)
    return re.sub(r"\bbeta\b", r"$\\beta$", text)


def write_tables(tables: Iterable[Table], folder: Path) -> None:
    """tables.txt, tables.md and tables.tex with all tables, and NAME.csv with every digit of each."""
    tables = list(tables)
    for suffix, render in (("txt", to_screen), ("md", to_markdown), ("tex", to_latex)):
        write_text("\n".join(map(render, tables)), folder / f"tables.{suffix}")
    for table in tables:
        write_atomically(folder / f"{table.name}.csv", partial(table.frame.to_csv, index=False))
