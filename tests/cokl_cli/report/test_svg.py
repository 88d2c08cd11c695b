"""Pictures as parts of the page: colours at night, words for points, and what the CSV behind a figure has."""

from __future__ import annotations

import base64
import itertools
import re
from importlib.resources import files
from xml.etree import ElementTree

import numpy as np
import pytest

from cokl_cli.report import svg
from cokl_cli.report.svg import data_of, day_and_night, inline, legend_of
from figures.marks import Drawing, Panel, join, marks
from figures.matplotlib_renderer import render
from figures.style import METHOD_STYLES, Style

CSS = (files("cokl_cli.report") / "assets" / "page.css").read_text(encoding="utf-8")
NIGHT = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", CSS.partition("prefers-color-scheme: dark")[2]))
SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"


def luminance(colour: tuple[int, ...]) -> float:
    """Relative, 0 to 1, as WCAG defines it."""
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def parts(colours: str) -> list[tuple[int, ...]]:
    """Red, green and blue of each colour in CSS."""
    return [tuple(int(part, 16) for part in one) for one in re.findall("#(..)(..)(..)", colours)]


def pair(colour: str) -> list[tuple[int, ...]]:
    """By day and by night."""
    return parts(day_and_night(colour))


def test_a_pictures_page_and_ink_at_night_are_the_pages():
    assert (NIGHT["page"], NIGHT["ink"]) == (svg.PAGE_AT_NIGHT, svg.INK_AT_NIGHT)


@pytest.mark.parametrize("colour", sorted({*(style.color for style in METHOD_STYLES.values()), "#332288", "#6a2f00"}))
def test_by_day_a_colour_is_itself_and_by_night_it_can_be_read(colour):
    day, night = pair(colour)
    assert "#" + "".join(f"{part:02x}" for part in day) == colour.lower()
    (page,) = parts(NIGHT["page"])
    assert (luminance(night) + 0.05) / (luminance(page) + 0.05) >= 4.5


def test_methods_are_told_apart_at_night():
    nights = {pair(style.color)[1] for style in METHOD_STYLES.values()}
    assert len(nights) == len({style.color for style in METHOD_STYLES.values()})
    for one, other in itertools.combinations(nights, 2):
        assert np.abs(np.subtract(one, other)).max() > 24, (one, other)


def drawing() -> Drawing:
    """A line with intervals, a band of 20 points, and in a second panel a grey copy and a point with bad names."""
    line = marks("a", "line", label="Forward KL, $\\beta=0.1$", method="forward_kl", x=[1.0, 2.0], y=[3.0, 4.0],
                 low=[2.5, 3.0], high=[3.5, 5.0], text=["β = 1", "β = 2"])  # fmt: skip
    band = marks("a", "band", label="CoKL", method="cokl", x=np.arange(20.0), y=np.arange(20.0))
    behind = line.assign(panel="b", style="others", kind="seed")
    named = marks("b", "point", label="<!--<script>", method="<i title='mine'>", x=[1.0], y=[0.25])
    panels = {"a": Panel("Kept", "Step", r"$D_{\mathrm{KL}}(p)$ [nats]"), "b": Panel("Lost", "Step", "Share")}
    return Drawing(join([line, band, behind, named]), panels, 2, 2, "Words.", {"others": Style("#c9c9c9")})


def said(root: ElementTree.Element, method: str) -> list[str]:
    groups = [one for one in root.iter(f"{SVG}g") if one.get("data-method") == method]
    return [words for group in groups for mark in group.iter(f"{SVG}use") if (words := mark.get("data-said"))]


def test_points_say_their_values_and_series_their_method():
    root = ElementTree.fromstring(inline(render(drawing(), legend=False), "fig", drawing()))
    assert said(root, "forward_kl") == [
        "Forward KL, β = 0.1, β = 1, Step 1, Conditional KL [nats] 3 ± 0.5",
        "Forward KL, β = 0.1, β = 2, Step 2, Conditional KL [nats] 4 ± 1",
    ]
    assert said(root, "cokl")[1] == "CoKL, Step 3, Conditional KL [nats] 3"  # every third of a band's has a marker
    assert said(root, "<i title='mine'>") == ["<!--<script>, Step 1, Share 0.25"]
    assert root.get("aria-label") == "Words."


def test_a_point_that_is_not_there_shifts_no_words():
    """Of 20 points every third has a marker; the second is not there, and the seventh would have had one."""
    missing = np.isin(np.arange(20), (1, 6))
    band = marks("a", "band", label="CoKL", method="cokl", x=np.arange(20.0), y=np.where(missing, np.nan, 1.0))
    drawn = Drawing(band, {"a": Panel("Kept", "Step", "Share")}, 1, 2, "Words.")
    root = ElementTree.fromstring(inline(render(drawn, legend=False), "fig", drawn))
    assert said(root, "cokl") == [f"CoKL, Step {step}, Share 1" for step in (0, 3, 9, 12, 15, 18)]


def test_a_line_of_more_than_500_points_is_a_picture_in_the_picture():
    line = marks("a", "line", label="CoKL", method="cokl", x=np.arange(501.0), y=np.arange(501.0))
    drawn = Drawing(line, {"a": Panel("Kept", "Step", "Share")}, 1, 2, "Words.")
    root = ElementTree.fromstring(inline(render(drawn, legend=False), "fig", drawn))
    (image,) = root.iter(f"{SVG}image")
    kind, _, data = image.get(f"{LINK}href", "").partition(";base64,")
    assert kind == "data:image/png"
    assert base64.b64decode(data).startswith(b"\x89PNG")
    assert image.get("id", "").startswith("fig-")


def test_no_id_of_one_picture_is_anothers_and_no_rule_is_the_pages():
    texts = [inline(render(drawing()), name, drawing()) for name in ("one", "two")]
    ids = [set(re.findall(r' id="([^"]*)"', text)) for text in texts]
    assert ids[0]
    assert not ids[0] & ids[1]
    for text, own in zip(texts, ids, strict=True):
        used = {*re.findall(r'href="#([^"]*)"', text), *re.findall(r"url\(#([^)]*)\)", text)}
        assert used <= own
        assert "<style" not in text
        assert "<!--" not in text


def test_the_numbers_behind_a_figure_are_its_marks_once_with_their_axes():
    table = data_of(drawing())
    ours = table[table["method"] == "forward_kl"]
    assert ours[ours["panel"] == "Kept"][["x", "y", "low", "high"]].to_numpy().tolist() == [[1, 3, 2.5, 3.5],
                                                                                           [2, 4, 3, 5]]  # fmt: skip
    assert set(table["y_axis"]) == {"Conditional KL [nats]", "Share"}
    assert "x_low" not in table
    assert legend_of(drawing())["forward_kl"] == "Forward KL, β = 0.1"
