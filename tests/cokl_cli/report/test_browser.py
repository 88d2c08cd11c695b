"""The page in a real browser: every slider changes what it should, and a page with a planted defect is noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page

from bandit.sweep.analysis import matched_table
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
    expected = matched_table(controlled_experiment()).to_numpy().tolist()
    assert sorted(rows(page, "tradeoff-matched")) == sorted(expected)
    page.locator("#tradeoff-target").fill("0.82")
    betas = {row[0]: row[1] for row in rows(page, "tradeoff-matched")}
    assert (betas["Forward KL"], betas["Entropy"]) == ("0.1", "0.1")
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


CHECKS: dict[Callable[[Page], None], tuple[str, str]] = {
    check_steps: ("steps[Number(stepInput.value)]", "steps.at(-1)"),
    check_matched: ("far(s) < far(best) ? s : best", "far(s) > far(best) ? s : best"),
    check_optima: ("grid[here][at]", "grid[0][at]"),
    check_claims: ("words.every(", "words.some("),
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
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
