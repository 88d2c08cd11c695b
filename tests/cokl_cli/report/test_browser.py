"""The page in a real browser: every slider changes what it should, and a page with a planted defect is noticed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Locator, Page

from bandit.sweep.analysis import Scored, matched_table
from cokl import regularizers
from tests.cokl_cli.report.conftest import controlled_experiment

pytestmark = pytest.mark.browser


def drawn(page: Page, plot: str, method: str) -> list[float]:
    """The heights of a method's marks, read off the labels of the axis as an eye does."""
    places = """([plot, which]) => [...document.querySelectorAll(`#${plot} ${which}`)].map(one =>
        [Number(one.getAttribute("y")), Number(one.textContent)])"""
    (first, low), *_, (last, high) = page.evaluate(places, [plot, "text.y"])
    marks = np.array([y for y, _ in page.evaluate(places, [plot, f'g[data-method="{method}"] .mark'])])
    return list(low + (marks - (first - 4)) / (last - first) * (high - low))  # labels stand 4 pixels below their lines


def rows(page: Page, table: str) -> list[list[str]]:
    """Cells of a table's body."""
    found: list[list[str]] = page.evaluate(
        "id => [...document.getElementById(id).tBodies[0].rows].map(row => [...row.cells].map(one => one.textContent))",
        table,
    )
    return found


def check_steps(page: Page) -> None:
    """Marks and table are of the chosen step."""
    for key, step in (("", 200), ("ArrowLeft", 100)):
        page.focus("#tradeoff-step")
        page.keyboard.press(key) if key else None
        assert page.locator("#tradeoff-step-value").text_content() == str(step)
        table = (
            controlled_experiment()
            .query(f"method == 'cokl' and step == {step}")
            .groupby("beta")
            .mean(numeric_only=True)
        )
        for metric, column, place in (("coverage", "coverage_at_64", 3), ("kl", "conditional_kl", 5)):
            np.testing.assert_allclose(drawn(page, f"tradeoff-{metric}", "cokl"), table[column], atol=2e-3)
            cells = [row[place] for row in rows(page, "tradeoff-points") if row[0] == "CoKL"]
            np.testing.assert_allclose([float(cell.split()[0]) for cell in cells], table[column], atol=1e-4)


def check_matched(page: Page) -> None:
    """At first the table is Python's; a lower match takes other coefficients, which are drawn large."""
    expected = matched_table(Scored.of(controlled_experiment())).to_numpy().tolist()
    for row in expected:
        row[1] += "*" if abs(float(row[2].split()[0]) - 0.96) > 0.01 else ""
    assert {row[0] for row in expected if row[1].endswith("*")} == {"No regularizer"}
    assert sorted(rows(page, "tradeoff-matched")) == sorted(expected)
    page.locator("#tradeoff-target").fill("0.82")
    betas = {row[0]: row[1] for row in rows(page, "tradeoff-matched")}
    assert (betas["Forward KL"], betas["Entropy"]) == ("0.1*", "0.1*")
    page.locator("#tradeoff-target").fill("0.801")
    assert {row[0]: row[1] for row in rows(page, "tradeoff-matched")}["Forward KL"] == "0.1"
    large = page.evaluate(
        "[...document.querySelectorAll('#tradeoff-kl g[data-method=forward_kl] .mark')].map(m => m.matches('.large'))"
    )
    assert large == [False, True]


def check_optima(page: Page) -> None:
    before = rows(page, "optima-table")
    page.locator("#optima-q").fill("30")
    page.locator("#optima-beta").fill("100")
    q, beta = (float(page.locator(f"#optima-{name}-value").text_content() or "") for name in ("q", "beta"))
    after = rows(page, "optima-table")
    assert after != before
    (shown,) = [float(row[1]) for row in after if row[0] == "Forward KL"]
    mass = regularizers.get("forward_kl").optimal_mass(q, beta)
    assert mass is not None
    assert shown == pytest.approx(float(mass), abs=1e-4)


def check_claims(page: Page) -> None:
    everything = page.locator(".claim:visible").count()
    page.fill("#claims-search", "gap theorem")
    assert page.locator(".claim:visible").count() == 1
    assert "the gap is <small>" in (page.locator(".claim:visible summary").text_content() or "")
    assert page.locator("#claims-count").text_content() == f"1 of {everything} claims"
    page.click(".claim:visible summary")
    assert page.locator(".claim:visible a").get_attribute("href") == "theory"
    page.fill("#claims-search", "")
    page.select_option("#claims-verdict", "not held")
    verdicts = page.locator(".claim:visible .verdict").all_text_contents()
    assert set(verdicts) == {"not held"}


def check_sliders(page: Page) -> None:
    """A screen reader says the name of a slider and the value that stands beside it, not the slider's own number."""
    names = {"tradeoff-step": "Training step", "tradeoff-target": "Matched correctness",
             "optima-q": "Reference's correctness q", "optima-beta": "Coefficient β"}  # fmt: skip
    page.locator("#tradeoff-step").fill("1")
    page.locator("#optima-beta").fill("75")
    for name, words in names.items():
        assert page.get_by_role("slider", name=words, exact=True).get_attribute("id") == name
        said = page.locator(f"#{name}").get_attribute("aria-valuetext")
        assert said == page.locator(f"#{name}-value").text_content()
    for name, value in (("tradeoff-step", "100"), ("optima-beta", "1.00")):
        assert page.locator(f"#{name}").get_attribute("aria-valuetext") == value


def check_values(page: Page) -> None:
    """At the pointer, in a plot of the script's and in one of Matplotlib's; away from points, nothing."""
    table = controlled_experiment().query("method == 'forward_kl' and step == 200 and beta == 0.1")
    means = table.mean(numeric_only=True)
    tip = page.locator("#tip")
    for place in ("#tradeoff-kl", "#sweep figure >> nth=0"):
        points = page.locator(f"{place} >> [data-method=forward_kl] [data-said*='β = 0.1,']")
        point = points.first
        point.scroll_into_view_if_needed()
        box = point.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2 + 2, box["y"] + box["height"] / 2 + 2)
        said = tip.text_content() or ""
        assert said.startswith("Forward KL, β = 0.1, "), said
        numbers = [float(words.split(" ±")[0].split()[-1]) for words in said.split(", ")[2:]]
        column = "conditional_kl" if place == "#tradeoff-kl" else "coverage_at_64"
        np.testing.assert_allclose(numbers, [means["p_correct"], means[column]], atol=1e-3)
        assert tip.is_visible()
    page.mouse.move(2, 2)
    assert tip.is_hidden()


def check_legend(page: Page) -> None:
    """Hides a method in all that stands under it, there alone, and also after a slider has moved."""
    for section, drawn_in in (("#tradeoff", 2), ("#sweep figure >> nth=0", 1)):
        button = page.locator(f"{section} >> [data-hides=cokl]")
        ours, others = (page.locator(f"{section} >> svg [data-method={name}]") for name in ("cokl", "entropy"))
        button.click()
        if section == "#tradeoff":
            page.locator("#tradeoff-step").fill("1")
        assert button.get_attribute("aria-pressed") == "false"
        assert ours.count() >= drawn_in
        assert not any(ours.nth(i).is_visible() for i in range(ours.count()))
        assert all(others.nth(i).is_visible() for i in range(others.count()))
    assert page.locator("#sweep figure >> nth=1 >> svg [data-method=cokl]").first.is_visible()
    page.locator("#tradeoff [data-hides=cokl]").click()
    assert page.locator("#tradeoff svg [data-method=cokl]").first.is_visible()


def saved(page: Page, link: str) -> pd.DataFrame:
    with page.expect_download() as download:
        page.locator(link).click()
    return pd.read_csv(download.value.path())


def check_csv(page: Page) -> None:
    """Behind a plot that the script draws and behind Matplotlib's: each mean of the table."""
    table = controlled_experiment()
    table = table[table["method"] != "reference"]
    means = table.groupby(["method", "beta", "step"]).mean(numeric_only=True)
    plotted = saved(page, '[data-of="tradeoff-kl"]').set_index(["method", "beta", "step"]).sort_index()
    np.testing.assert_allclose(plotted["kl"], means["conditional_kl"].sort_index(), atol=1e-5)
    drawn = saved(page, "#sweep figure >> nth=0 >> .csv")
    ends = means.xs(200, level="step")
    for column, axis in (("coverage_at_64", "Coverage@64"), ("conditional_kl", "Conditional KL [nats]")):
        found = drawn[(drawn["y_axis"] == axis) & (drawn["method"] != "reference")]
        assert sorted(found["y"]) == pytest.approx(sorted(ends[column]), rel=1e-4)
        assert sorted(found["x"]) == pytest.approx(sorted(ends["p_correct"]), rel=1e-4)


def check_print(page: Page) -> None:
    """All is unfolded while it is printed, nothing is wider than the paper, and no box scrolls."""
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 without its margins
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    wider = """[...document.querySelectorAll("table, svg, p, pre")]
        .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1).length"""
    assert page.evaluate(wider) == 0
    cut = """[...document.querySelectorAll(".scroll, .frame, #claims-list")]
        .filter(one => one.scrollHeight > one.clientHeight + 1 || one.scrollWidth > one.clientWidth + 1).length"""
    assert page.evaluate(cut) == 0
    together = page.locator("#tradeoff > .together")
    assert together.evaluate("one => getComputedStyle(one).breakInside") == "avoid"
    assert together.locator("input[type=range]").count() == together.locator(".plot").count() == 2
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


def width(shown: Locator) -> float:
    """Of what is on the screen, in pixels."""
    box = shown.bounding_box()
    assert box
    return box["width"]


def check_enlarged(page: Page) -> None:
    """On a telephone a figure grows in a frame that scrolls; the page itself stays as wide as the screen."""
    page.set_viewport_size({"width": 390, "height": 844})
    for figure, drawn_by in (("#sweep figure >> nth=0", ".picture"), ("#optima figure", ".plot svg")):
        shown = page.locator(f"{figure} >> {drawn_by}")
        assert width(shown) < 390
        page.locator(f"{figure} >> .enlarge").click()
        assert width(shown) > 900
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


STOP = """() => {
    const one = document.activeElement, box = one.getBoundingClientRect(), look = getComputedStyle(one);
    if (one === document.body) return null;
    const before = window.walked?.getBoundingClientRect();  // now: the focus may have scrolled a list
    window.walked = one;
    return {
        number: [...document.querySelectorAll("*")].indexOf(one), kind: one.tagName, html: one.outerHTML.slice(0, 80),
        name: one.getAttribute("aria-label") || one.labels?.[0]?.textContent ||
            (one.tagName === "DIV" ? "" : one.textContent),
        onwards: !before || box.bottom > before.top || box.left >= before.right,
        seen: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
        ring: look.outlineStyle === "none" ? 0 : parseFloat(look.outlineWidth), colour: look.outlineColor,
    };
}"""
"""What has the focus: its place among all elements and on the page, what it is called, and the ring around it."""


def check_keyboard(page: Page) -> None:
    """By Tab alone each thing that can be used is reached once, in reading order, seen and called by a name. Enter
    folds and hides, arrows move a slider, and its spoken value is the one beside it.
    """
    page.set_viewport_size({"width": 1000, "height": 800})  # where figures can be enlarged
    usable = """[...document.querySelectorAll("input, select, button, summary, a[href]")]
        .filter(one => one.checkVisibility()).map(one => [...document.querySelectorAll("*")].indexOf(one))"""
    expected: list[int] = page.evaluate(usable)
    ground = luminance(numbers(page.evaluate("getComputedStyle(document.body).backgroundColor")))
    stops: list[dict[str, Any]] = []
    moved, pressed = 0, 0
    page.keyboard.press("Tab")
    while (stop := page.evaluate(STOP)) is not None:
        assert len(stops) < 300, "the focus goes in a circle"
        assert stop["seen"], stop
        assert stop["ring"] >= 2, stop
        assert (max(luminance(numbers(stop["colour"])), ground) + 0.05) / (
            min(luminance(numbers(stop["colour"])), ground) + 0.05
        ) >= 3, stop
        assert stop["name"].strip(), stop
        assert stop["onwards"], stop
        stops.append(stop)
        focused = page.locator(":focus")
        if focused.get_attribute("type") == "range":
            said = focused.get_attribute("aria-valuetext")
            page.keyboard.press("ArrowLeft")
            now = focused.get_attribute("aria-valuetext")
            assert now != said, stop
            assert now == page.locator(f"#{focused.get_attribute('id')}-value").text_content()
            moved += 1
        elif stop["kind"] == "SUMMARY" or focused.get_attribute("data-hides"):
            state = (
                "one => one.tagName === 'SUMMARY' ? String(one.parentElement.open) : one.getAttribute('aria-pressed')"
            )
            was = focused.evaluate(state)
            page.keyboard.press("Enter")
            assert focused.evaluate(state) != was, stop
            page.keyboard.press("Enter")
            assert focused.evaluate(state) == was, stop
            pressed += 1
        page.keyboard.press("Tab")
    assert [stop["number"] for stop in stops if stop["kind"] != "DIV"] == expected
    assert moved == page.locator("input[type=range]").count() == 4
    assert pressed == page.locator("[data-hides], summary:visible").count() > 10


CHECKS: dict[Callable[[Page], None], tuple[str, str]] = {
    check_steps: ("steps[Number(stepInput.value)]", "steps.at(-1)"),
    check_matched: ("far(s) < far(best) ? s : best", "far(s) > far(best) ? s : best"),
    check_optima: ("grid[here][at]", "grid[0][at]"),
    check_claims: ("words.every(", "words.some("),
    check_sliders: ('input.setAttribute("aria-valuetext", words);', ""),
    check_values: ("const NEAR = 14;", "const NEAR = 0;"),
    check_legend: ("  hide(withLegend(element));", ""),
    check_keyboard: (":focus-visible { outline: 3px solid", ":focus-visible { outline: 0 solid"),
    check_csv: ("keys.map(key => s[key][i])", "keys.map(key => s[key][0])"),
    check_print: ("for (const one of opened) one.open = true;", ""),
    check_enlarged: (".large .plot, .large .picture { width: 64rem; max-width: none; }", ""),
}
"""Each check, and the defect that it must notice: a piece of the page's script and what stands there instead."""


@pytest.mark.parametrize("check", CHECKS)
def test_the_interaction_works(check: Callable[[Page], None], report: Path, opened):
    check(opened(report))


@pytest.mark.parametrize("check", CHECKS)
def test_a_broken_interaction_is_noticed(check: Callable[[Page], None], report: Path, opened, tmp_path):
    piece, broken = CHECKS[check]
    text = report.read_text(encoding="utf-8")
    assert text.count(piece) == 1
    (tmp_path / "broken.html").write_text(text.replace(piece, broken), encoding="utf-8")
    page = opened(tmp_path / "broken.html")
    with pytest.raises(AssertionError):
        check(page)


@pytest.mark.parametrize(
    "window",
    [{"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}],
)
def test_every_plot_is_drawn_without_a_word_in_the_console_or_a_request(window, report: Path, opened):
    said: list[str] = []
    page = opened(report, said, **window)
    assert page.locator(".plot").count() == page.locator(".plot > svg").count() == 3
    assert page.locator(".picture").count() == 6
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_methods_have_other_colours_at_night_that_stand_out_from_the_page(report: Path, opened):
    colours = {}
    for scheme in ("light", "dark"):
        page = opened(report, color_scheme=scheme)
        script = """name => [...document.querySelectorAll(`#sweep figure [data-method=${name}] path`)]
            .map(one => getComputedStyle(one).stroke).find(stroke => stroke.startsWith("rgb"))"""
        ground = numbers(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        for name in ("cokl", "forward_kl", "none"):
            line = numbers(page.evaluate(script, name))
            colours[scheme, name] = tuple(line)
            assert abs(luminance(line) - luminance(ground)) > 0.1, (scheme, name)
    assert colours["light", "cokl"] == (0xD5, 0x5E, 0x00)
    assert colours["light", "none"] == (0, 0, 0)
    assert min(colours["dark", "none"]) > 200
    assert colours["dark", "forward_kl"] != colours["light", "forward_kl"]
    red, green, blue = colours["dark", "forward_kl"]
    assert blue > green > red  # the hue is the method's own


def numbers(colour: str) -> list[int]:
    """Red, green and blue."""
    return [int(part) for part in re.findall(r"\d+", colour)[:3]]


def luminance(colour: list[int]) -> float:
    """Relative, 0 to 1, as WCAG defines it."""
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
