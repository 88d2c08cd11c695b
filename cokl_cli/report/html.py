"""What a section of the page is made of: HTML, pictures, data for the page's script, and how methods look in both."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from figures.style import Picture, method_style, settings

_SYMBOLS = dict(zip("osD^vX*Pd<>phH84", "●■◆▲▼✖★✚♦◀▶⬟⬢⬣⯃≻", strict=True))
"""A character for each of Matplotlib's markers."""
_LINE_WIDTH = 2
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
    return f'<div class="scroll" tabindex="0">{whole}</div>'


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


def picture(drawn: Picture) -> str:
    """A picture as SVG, with its caption."""
    buffer = io.StringIO()
    with settings({"svg.hashsalt": "page"}):
        drawn.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    encoded = base64.b64encode(buffer.getvalue().encode()).decode()
    image = f'<img class="picture" src="data:image/svg+xml;base64,{encoded}" alt="{text(drawn.caption)}">'
    return f"<figure>{image}<figcaption>{text(drawn.caption)}</figcaption></figure>"


def plot(name: str, caption: str) -> str:
    """The place of a plot, with its caption; what is drawn there is told apart by `name`."""
    return (
        f'<figure><div class="plot" id="{name}" role="img" aria-label="{text(caption)}"></div>'
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def legend(methods: Iterable[str], label: Callable[[str], str]) -> str:
    """The methods with their marks."""
    entries = "".join(
        f'<li><span class="mark" style="color:{method_style(method).color}">{_symbol(method)}</span> '
        f"{text(label(method))}</li>"
        for method in methods
    )
    return f'<ul class="legend">{entries}</ul>'


def look(method: str) -> dict[str, Any]:
    """Colour, line and mark for the page's script."""
    style = method_style(method)
    dash = " ".join(f"{length * _LINE_WIDTH:g}" for length in style.dashes)
    return {"color": style.color, "width": _LINE_WIDTH, "dash": dash, "symbol": _symbol(method)}


def _symbol(method: str) -> str:
    return _SYMBOLS[method_style(method).marker]
