"""What a section of the page is made of: HTML, pictures, data for the page's script, and how methods look in both."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from cokl.support.statistics import csv_text
from cokl_cli.report import svg
from figures.marks import Drawing
from figures.matplotlib_renderer import render
from figures.style import Picture, method_style

_SYMBOLS = dict(zip("osD^vX*Pd<>phH84", "●■◆▲▼✖★✚♦◀▶⬟⬢⬣⯃≻", strict=True))
"""A character for each of Matplotlib's markers."""
_LINE_WIDTH = 2
ENLARGE = '<button type="button" class="enlarge" aria-pressed="false">Enlarge</button>'
_WORDS = {"correct": "correctness", "r2": "R²", "new kl": "KL on the new task"}


@dataclass(frozen=True)
class Section:
    """A part of the page. kind: its place in the table of contents. data: what the page's script needs."""

    kind: str
    title: str
    body: str
    data: Mapping[str, Any] = field(default_factory=dict)


def text(value: object) -> str:
    """Escaped for HTML."""
    return html.escape(str(value))


def table(frame: pd.DataFrame, caption: str = "", best: pd.DataFrame | None = None) -> str:
    """A table that scrolls sideways where it does not fit; numbers must be text already. best: which cells are so."""
    marked = np.zeros(frame.shape, dtype=bool) if best is None else best.to_numpy(dtype=bool)
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in frame.columns)
    rows = "".join(
        "<tr>" + "".join(_cell(str(cell), bool(best)) for cell, best in zip(row, bests, strict=True)) + "</tr>"
        for row, bests in zip(frame.itertuples(index=False, name=None), marked, strict=True)
    )
    heading = f"<caption>{text(caption)}</caption>" if caption else ""
    whole = f"<table>{heading}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption or "Table")}">{whole}</div>'


def _cell(cell: str, best: bool) -> str:
    kind = ' class="best"' if best else ' class="long"' if len(cell) > 60 else ""
    return f"<td{kind}>{text(cell)}</td>"


def folded(
    made: Mapping[str, pd.DataFrame],
    shown: Callable[[pd.DataFrame], pd.DataFrame],
    titles: Mapping[str, str],
    captions: Mapping[str, str],
) -> str:
    """A folded block for each table that has rows. shown: a table as people read it.

    titles: what stands on a block while it is folded; its caption where it has none.
    """
    return "".join(
        f"<details><summary>{text(titles.get(key, captions[key]))}</summary>"
        f"{table(shown(rows).rename(columns=heading), captions[key])}</details>"
        for key, rows in made.items()
        if len(rows)
    )


def heading(column: object) -> str:
    """A column's name in words."""
    name = re.sub(r"_at_(?=\d|k\b)", "@", str(column)).removeprefix("p_").replace("_", " ")
    return _WORDS.get(name, re.sub(r"\bkl\b", "KL", name))


def picture(drawn: Picture, name: str) -> str:
    """A picture with its caption; its parts' ids begin with `name`."""
    return _figure(svg.inline(drawn, name), drawn.caption)


def chart(drawing: Drawing, name: str) -> str:
    """A drawing with a legend that hides methods, values at its points, and its numbers as CSV. name: of the CSV."""
    drawn = render(drawing, legend=drawing.legend is not None)
    methods = svg.legend_of(drawing)
    above = legend(methods, methods.__getitem__) if len(methods) > 1 else ""
    return _figure(svg.inline(drawn, name, drawing), drawn.caption, above, csv_link(svg.data_of(drawing), name))


def _figure(shown: str, caption: str, above: str = "", more: str = "") -> str:
    """What is shown in a frame that scrolls once it is enlarged."""
    return (
        f'<figure class="together">{above}'
        f'<div class="frame" tabindex="0" role="region" aria-label="{text(caption)}">{shown}</div>'
        f"<figcaption>{text(caption)} {more}{ENLARGE}</figcaption></figure>"
    )


def csv_link(table: pd.DataFrame, name: str) -> str:
    """A link that saves a table as NAME.csv."""
    encoded = base64.b64encode(csv_text(table).encode()).decode()
    return f'<a class="csv" download="{text(name)}.csv" href="data:text/csv;base64,{encoded}">CSV</a> '


def plot(name: str, caption: str) -> str:
    """The place of a plot that the page's script draws, with its caption; plots are told apart by `name`."""
    shown = f'<div class="plot" id="{name}" role="img" aria-label="{text(caption)}"></div>'
    return _figure(
        shown, caption, more=f'<a class="csv" href="#{name}" download="{name}.csv" data-of="{name}">CSV</a> '
    )


def slider(name: str, label: str, low: float, high: float, step: float, value: float) -> str:
    """A slider called `label`; the page's script puts its value beside it, which is also what a screen reader says."""
    return (
        f'<div class="slider"><label for="{name}">{text(label)}</label> '
        f'<output id="{name}-value" for="{name}" aria-live="off"></output>'
        f'<input type="range" id="{name}" min="{low:g}" max="{high:g}" step="{step:g}" value="{value:g}"></div>'
    )


def legend(methods: Iterable[str], label: Callable[[str], str]) -> str:
    """The methods with their marks, as buttons that hide and show them."""
    entries = "".join(
        f'<li><button type="button" aria-pressed="true" data-hides="{text(method)}">'
        f'<span class="mark" aria-hidden="true" style="color:{look(method)["color"]}">{_symbol(method)}</span> '
        f"{text(label(method))}</button></li>"
        for method in methods
    )
    return f'<ul class="legend" aria-label="Methods shown">{entries}</ul>'


def look(method: str) -> dict[str, Any]:
    """Colour, line and mark for the page's script."""
    style = method_style(method)
    dash = " ".join(f"{length * _LINE_WIDTH:g}" for length in style.dashes)
    colour = svg.day_and_night(style.color)
    return {"color": colour, "width": _LINE_WIDTH, "dash": dash, "symbol": _symbol(method)}


def _symbol(method: str) -> str:
    return _SYMBOLS[method_style(method).marker]
