"""What a section of the page is made of: HTML, pictures, data for the page's script, and how methods look in both."""

from __future__ import annotations

import base64
import colorsys
import html
import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.colors import to_hex, to_rgb

from figures.style import RC, Picture, Style, method_style

DARK_PAGE = "#14171c"
"""Background of the dark page, against which dark colours are lightened."""
_SYMBOLS = {
    "o": ("circle", "●"),
    "s": ("square", "■"),
    "D": ("diamond", "◆"),
    "^": ("triangle-up", "▲"),
    "v": ("triangle-down", "▼"),
    "X": ("x", "✖"),
    "*": ("star", "★"),
    "P": ("cross", "✚"),
    "d": ("diamond-tall", "♦"),
    "<": ("triangle-left", "◀"),
    ">": ("triangle-right", "▶"),
    "p": ("pentagon", "⬟"),
    "h": ("hexagon", "⬢"),
    "H": ("hexagon2", "⬣"),
    "8": ("octagon", "⯃"),
    "4": ("y-right-open", "≻"),
    ".": ("circle", "●"),
    "+": ("cross-thin-open", "+"),
    "x": ("x-thin-open", "✕"),
}
"""matplotlib's marker -> plotly's and a character for the legend."""
_LINE_WIDTH = 2.0
_LONG = ' class="long"'
_SENTENCE = re.compile(r":\s|\.\s+(?=[A-Z])|\.$")
_WORDS = {"correct": "correctness", "r2": "R²", "new kl": "KL on the new task"}


@dataclass(frozen=True)
class Section:
    """A part of the page.

    kind: its place in the table of contents. source: the folder that it shows, where there may be several. data: what
    the page's script needs.
    """

    kind: str
    title: str
    body: str
    source: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


def text(value: object) -> str:
    """Escaped for HTML."""
    return html.escape(str(value))


def table(frame: pd.DataFrame, caption: str = "") -> str:
    """A table that scrolls sideways where it does not fit; numbers must be text already."""
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in frame.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td{_LONG if len(str(cell)) > 60 else ''}>{text(cell)}</td>" for cell in row) + "</tr>"
        for row in frame.itertuples(index=False, name=None)
    )
    heading = f"<caption>{text(caption)}</caption>" if caption else ""
    whole = f"<table>{heading}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="scroll" tabindex="0">{whole}</div>'


def folded(
    made: Mapping[str, pd.DataFrame], shown: Callable[[pd.DataFrame], pd.DataFrame], captions: Mapping[str, str]
) -> str:
    """A block for each table that has rows, the first of all open. shown: a table as people read it."""
    first = next(iter(made))
    return "".join(
        f"<details{' open' if key == first else ''}><summary>{text(_SENTENCE.split(captions[key])[0])}</summary>"
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
    with mpl.rc_context({**RC, "svg.hashsalt": "page"}):
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


def legend(methods: Iterable[str], label: Any) -> str:
    """Buttons that name the methods; pressing one isolates it in every plot of its section."""
    buttons = "".join(
        f'<button type="button" class="chip" data-method="{text(method)}" aria-pressed="false">'
        f'<span class="mark" style="--light:{color(method)};--dark:{darkened(color(method))}">'
        f"{_SYMBOLS[method_style(method).marker][1]}</span>{text(label(method))}</button>"
        for method in methods
    )
    return f'<div class="chips" role="group" aria-label="Methods: press one to isolate it">{buttons}</div>'


def look(style: Style) -> dict[str, Any]:
    """Line and marker for plotly."""
    dash = ",".join(f"{length * _LINE_WIDTH:g}px" for length in style.dashes) or "solid"
    symbol = _SYMBOLS[style.marker][0] if style.marker else "circle"
    if style.fill and not symbol.endswith("-open"):
        symbol += "-open"
    return {
        "line": {"color": str(to_hex(style.color)), "width": _LINE_WIDTH, "dash": dash},
        "marker": {"symbol": symbol, "color": str(to_hex(style.color)), "size": round(2.2 * style.size)},
    }


def color(method: str) -> str:
    """A method's colour on the light page."""
    return str(to_hex(method_style(method).color))


def darkened(light: str) -> str:
    """The colour for the dark page, lightened to stand out there as it does on white: black turns nearly white."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(light))
    shade, wanted = light, min(max(_contrast(light, "#ffffff"), 4.5), 13.0)
    while _contrast(shade, DARK_PAGE) < wanted:
        lightness += 0.02
        shade = str(to_hex(colorsys.hls_to_rgb(hue, lightness, saturation)))
    return shade


def _contrast(one: str, other: str) -> float:
    """The contrast ratio of the Web Content Accessibility Guidelines, in [1, 21]."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(shade: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(shade)]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
