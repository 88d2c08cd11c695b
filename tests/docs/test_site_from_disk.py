"""The site as a reader opens it who has no web server: files, in a real browser."""

import pytest

from tests.browser import PATIENCE_MS


@pytest.mark.browser
def test_the_search_finds_a_page_that_was_opened_from_disk(site, browser):
    asked = []
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "how-to" / "verl.html").as_uri())
    page.get_by_role("textbox", name="Search").fill("forgetting")
    found = page.locator(".md-search-result__link")
    found.first.wait_for()
    assert (site / "notebooks" / "03_task_shift.html").as_uri() in [
        link.split("?")[0] for link in found.evaluate_all("all => all.map(one => one.href)")
    ]
    page.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
