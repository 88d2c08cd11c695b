"""Matplotlib's figures as a part of the page: methods can be hidden, points say their values, colours have a night."""

from __future__ import annotations

import colorsys
import io
import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex, to_rgb

from figures.marks import Drawing, Panel
from figures.matplotlib_renderer import marker_every, series_name
from figures.style import Picture, settings

SVG, LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
PAGE_AT_NIGHT, INK_AT_NIGHT = "#14171c", "#e8eaee"
"""As page.css has them."""
CONTRAST = 4.5
"""Of a colour on a dark page, at least: WCAG's for text."""
_COLOUR = re.compile(r"(?<=: )#[0-9a-f]{6}\b")
_WORDS = {r"$\beta$": "β", r"$\mu$": "μ", "$G$": "G"}


def inline(drawn: Picture, name: str, drawing: Drawing | None = None) -> str:
    """The figure as an SVG element whose ids begin with `name`.

    drawing: what was drawn, if its marks are to say their method (data-method) and values (data-said).
    """
    buffer = io.StringIO()
    with settings({"svg.hashsalt": name}):
        drawn.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    for prefix, namespace in (("", SVG), ("xlink", LINK)):
        ElementTree.register_namespace(prefix, namespace)
    root = ElementTree.fromstring(buffer.getvalue())  # without Matplotlib's comments, which have the words of labels
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style"):  # the latter is of the whole page
                parent.remove(child)
    if drawing is not None:
        _tell(root, drawing)
    for element in root.iter():
        for attribute, opening in (("id", ""), ("clip-path", r"url\(#"), (f"{{{LINK}}}href", "#")):
            if value := element.get(attribute):
                element.set(attribute, re.sub(f"^({opening})", rf"\g<1>{name}-", value))
        if look := element.get("style"):
            element.set("style", _COLOUR.sub(lambda found: day_and_night(found[0]), look))
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.attrib |= {"class": "picture", "role": "img", "aria-label": drawn.caption}
    return ElementTree.tostring(root, encoding="unicode")


def _tell(root: ElementTree.Element, drawing: Drawing) -> None:
    """Replace the names of series by their method, and give each marker its values in words."""
    groups: dict[str, list[ElementTree.Element]] = {}
    for element in root.iter(f"{{{SVG}}}g"):
        groups.setdefault(element.get("id", ""), []).append(element)
    number = 0
    for panel, axes in drawing.panels.items():
        for kind, label, _, method, rows in drawing.series(panel):
            marked = rows[:: marker_every(kind, len(rows))].dropna(subset=["x", "y"])  # in Matplotlib's order
            said = [_said(label, axes, row) for row in marked.to_dict("records")]
            for group in groups.get(series_name(number), ()):
                del group.attrib["id"]
                if method:
                    group.set("data-method", method)
                markers = list(group.iter(f"{{{SVG}}}use"))
                if len(markers) == len(said) and kind in ("line", "band", "point"):
                    for marker, words in zip(markers, said, strict=True):
                        marker.set("data-said", words)
            number += 1


def _said(label: str, axes: Panel, row: Mapping[Any, Any]) -> str:
    """A point in words: what it is, and both values with half their intervals."""
    values = []
    for axis, name, low, high in (("x", axes.x, "x_low", "x_high"), ("y", axes.y or axes.title, "low", "high")):
        half = (row[high] - row[low]) / 2
        values.append(f"{plain(name)} {row[axis]:.4g}" + (f" ± {half:.2g}" if np.isfinite(half) else ""))
    return ", ".join(part for part in (plain(label), row["text"], *values) if part)


def legend_of(drawing: Drawing) -> dict[str, str]:
    """The label of each method that a figure draws; a method with several has its shortest."""
    named = drawing.marks[(drawing.marks["method"] != "") & (drawing.marks["label"] != "")]
    return {
        str(method): min(map(plain, labels.astype(str)), key=len)
        for method, labels in named.groupby("method", sort=False)["label"]
    }


def data_of(drawing: Drawing) -> pd.DataFrame:
    """A row for each mark, once, with the names of its axes; columns that nothing fills are left out."""
    rows = drawing.marks.drop(columns=["style", "run"])
    rows = rows.drop_duplicates([name for name in rows if name not in ("panel", "kind", "text")] + ["panel"])
    axes = rows["panel"].map(drawing.panels)
    named = rows.assign(
        panel=[plain(one.title) for one in axes],
        label=rows["label"].map(plain),
        x_axis=[plain(one.x) for one in axes],
        y_axis=[plain(one.y) for one in axes],
    )
    filled = [name for name in named if not (named[name].isna() | (named[name] == "")).all()]
    return named[filled]


def plain(words: str) -> str:
    """A label without mathematical type."""
    for formula, word in _WORDS.items():
        words = words.replace(formula, word)
    words = re.sub(r"\$\\beta ?= ?(.*?)\$", r"β = \1", words)
    words = re.sub(r"\$D_.*?\$", "Conditional KL", words)
    return re.sub(r"\s+", " ", re.sub(r" ?\$.*?\$", "", words)).strip()


def day_and_night(colour: str) -> str:
    """The colour on a white page, and one of the same hue that is seen on a dark page, as CSS."""
    return f"light-dark({to_hex(colour)}, {_at_night(to_hex(colour))})"


def _at_night(colour: str) -> str:
    """Greys change places between ink and page; other colours become lighter until they stand out."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
    if saturation < 0.1:
        ink, page = np.array(to_rgb(INK_AT_NIGHT)), np.array(to_rgb(PAGE_AT_NIGHT))
        return to_hex(ink + lightness * (page - ink))
    for step in range(100):
        lighter = colorsys.hls_to_rgb(hue, lightness + (1 - lightness) * step / 100, saturation)
        if contrast(to_hex(lighter), PAGE_AT_NIGHT) >= CONTRAST:
            return to_hex(lighter)
    return INK_AT_NIGHT


def contrast(one: str, other: str) -> float:
    """Of two colours, 1 to 21, as WCAG defines it."""

    def luminance(colour: str) -> float:
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in to_rgb(colour)]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)
