"""The page in a real browser: every interaction changes what it should, and a page with a planted defect is noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, TimeoutError

from bandit.sweep.analysis import matched_table
from cokl import regularizers
from tests.cokl_cli.report.conftest import controlled_experiment

pytestmark = pytest.mark.browser


def trace(page: Page, plot: str, method: str) -> dict:
    """Points of the last trace of a method, as plotly has drawn it; a line of a panel ends with its means."""
    page.locator(f"#{plot}").scroll_into_view_if_needed()
    page.locator(f"#{plot} .main-svg").first.wait_for()
    return page.evaluate(
        """([plot, method]) => {
            const found = document.getElementById(plot)._fullData.filter(trace => trace.meta?.method === method);
            const {x, y, opacity, hoverinfo} = found.at(-1);
            return {x: [...x], y: [...y], opacity, hoverinfo};
        }""",
        [plot, method],
    )


def place_of(page: Page, plot: str, x: float, y: float | None = None) -> tuple[float, float]:
    """Pixels, in the window, of a point of a plot; at its foot if no y is given. Scrolls it into view."""
    page.locator(f"#{plot}").scroll_into_view_if_needed()
    left, top = page.evaluate(
        """([plot, x, y]) => {
            const element = document.getElementById(plot), {xaxis, yaxis} = element._fullLayout;
            const box = element.getBoundingClientRect();
            const high = y === null ? yaxis._length * 0.96 : yaxis.d2p(y);
            return [box.left + xaxis._offset + xaxis.d2p(x), box.top + yaxis._offset + high];
        }""",
        [plot, x, y],
    )
    return left, top


def rows(page: Page, table: str) -> list[list[str]]:
    """Cells of a table's body."""
    found: list[list[str]] = page.evaluate(
        "id => [...document.getElementById(id).tBodies[0].rows].map(row => [...row.cells].map(one => one.textContent))",
        table,
    )
    return found


def set_range(page: Page, slider: str, value: float) -> None:
    """Move a slider as a user's input does."""
    page.locator(f"#{slider}").fill(str(value))


def check_steps(page: Page) -> None:
    final = trace(page, "paper-coverage", "cokl")["y"]
    page.focus("#paper-step")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#paper-step-value").text_content() == "100"
    table = controlled_experiment().query("method == 'cokl' and step == 100").groupby("beta")["coverage_at_64"].mean()
    half_way = trace(page, "paper-coverage", "cokl")["y"]
    assert np.abs(np.subtract(half_way, final)).min() > 0.01
    np.testing.assert_allclose(half_way, table.to_numpy(), atol=1e-6)


def check_matched_line(page: Page) -> None:
    """At first the table is Python's; dragging the line moves both lines, the table and the dynamics."""
    page.select_option("#paper-zoom", "all")
    expected = matched_table(controlled_experiment()).to_numpy().tolist()
    assert sorted(rows(page, "paper-matched")) == sorted(expected)
    assert trace(page, "paper-kl-dynamics", "forward_kl")["y"][-1] == pytest.approx(3.0, abs=0.01)
    line = page.evaluate("document.getElementById('paper-coverage')._fullLayout.shapes[0].x0")
    start = place_of(page, "paper-coverage", line)
    end = place_of(page, "paper-coverage", -np.log10(1 - 0.82))
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=8)
    page.mouse.up()
    page.wait_for_function("Math.abs(Number(document.getElementById('paper-target').value) - 0.82) < 0.02")
    for plot in ("paper-coverage", "paper-kl"):
        moved = page.evaluate("plot => document.getElementById(plot)._fullLayout.shapes[0].x0", plot)
        assert 1 - 10**-moved == pytest.approx(0.82, abs=0.02)
    betas = {row[0]: row[1] for row in rows(page, "paper-matched")}
    assert betas["Forward KL"] == "0.1"
    assert betas["Entropy"] == "0.1"
    assert trace(page, "paper-kl-dynamics", "forward_kl")["y"][-1] == pytest.approx(1.2, abs=0.01)
    page.focus("#paper-target")
    page.keyboard.press("End")
    assert {row[0]: row[1] for row in rows(page, "paper-matched")}["Forward KL"] == "0.001"


def check_cards(page: Page) -> None:
    """The cards count what the logbook lists, and lead to it."""
    held = int(page.locator(".card.good b").text_content() or "")
    page.click(".card.bad")
    page.wait_for_function("document.getElementById('claims-verdict').value === 'not held'")
    assert page.locator(".claim:visible").count() == int(page.locator(".card.bad b").text_content() or "")
    page.select_option("#claims-verdict", "held")
    assert page.locator(".claim:visible").count() == held


def check_optima(page: Page) -> None:
    before = rows(page, "optima-table")
    set_range(page, "optima-q", 30)
    set_range(page, "optima-beta", 100)
    q, beta = (float(page.locator(f"#optima-{name}-value").text_content() or "") for name in ("q", "beta"))
    after = rows(page, "optima-table")
    assert after != before
    (shown,) = [float(row[1]) for row in after if row[0] == "Forward KL"]
    mass = regularizers.get("forward_kl").optimal_mass(q, beta)
    assert mass is not None
    assert shown == pytest.approx(float(mass), abs=1e-4)


def check_logbook(page: Page) -> None:
    everything = page.locator(".claim:visible").count()
    page.fill("#claims-search", "gap theorem")
    assert page.locator(".claim:visible").count() == 1
    assert "the gap is <small>" in (page.locator(".claim:visible summary").text_content() or "")
    assert page.locator("#claims-count").text_content() == f"1 of {everything} claims"
    page.click(".claim:visible summary")
    link = page.locator(".claim:visible a").get_attribute("href") or ""
    assert link == "theory"
    page.fill("#claims-search", "conditional KL")
    first = page.locator(".claim:visible summary").first.text_content() or ""
    assert "conditional kl" in first.lower()
    page.fill("#claims-search", "")
    page.select_option("#claims-verdict", "not held")
    verdicts = page.locator(".claim:visible .verdict").all_text_contents()
    assert verdicts
    assert set(verdicts) == {"not held"}


def check_theme(page: Page) -> None:
    def look() -> tuple[str, str]:
        found = page.evaluate(
            "[getComputedStyle(document.body).backgroundColor,"
            " document.getElementById('paper-coverage')._fullData.find(t => t.meta?.method === 'none').marker.color]"
        )
        return tuple(found)

    page.emulate_media(color_scheme="light")
    page.wait_for_function("document.documentElement.dataset.theme === 'light'")
    assert look() == ("rgb(255, 255, 255)", "#000000")
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    background, mark = look()
    assert background == "rgb(20, 23, 28)"
    assert int(mark[1:3], 16) > 180
    page.click("#theme")
    assert look() == ("rgb(255, 255, 255)", "#000000")


CHECKS: dict[Callable[[Page], None], tuple[str, str]] = {
    check_steps: ("state.step = Number(stepInput.value)", "state.step = state.step"),
    check_matched_line: ("retarget(unstretch(", "void (unstretch("),
    check_optima: ("grid[here][at]", "grid[0][at]"),
    check_logbook: ("words.every(", "words.some("),
    check_cards: ("control.dispatchEvent(", "void ("),
    check_theme: ('system.addEventListener("change", apply)', ""),
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
    page = opened(_written(tmp_path / "broken.html", text.replace(piece, broken)))
    page.set_default_timeout(3000)
    with pytest.raises((AssertionError, TimeoutError)):
        check(page)


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "window",
    [{"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}],
)
def test_every_plot_is_drawn_without_a_word_in_the_console_or_a_request(window, report: Path, opened):
    said: list[str] = []
    page = opened(report, said, **window)
    for plot in page.locator(".plot").all():
        plot.scroll_into_view_if_needed()
        plot.locator(".main-svg").first.wait_for()
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
