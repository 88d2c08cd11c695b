"""The documentation site: built without a warning, complete, and loading nothing from elsewhere."""

import json
import re

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.docs


def test_no_page_loads_anything_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="(https?:[^"]+)"', page.read_text())
        loaded += re.findall(r'<link[^>]* rel="(?:stylesheet|preload)"[^>]* href="(https?:[^"]+)"', page.read_text())
        assert loaded == [], page.name


def test_every_link_leads_somewhere(site):
    for page in site.rglob("*.html"):
        targets = re.findall(r'(?:href|src)="([^"#:?]+?)(?:[#?][^"]*)?"', page.read_text())
        missing = {t for t in targets if not t.startswith(("/", "mailto")) and not (page.parent / t).exists()}
        assert missing == set(), page.name


def test_formulas_are_drawn_by_the_browser(site):
    for name in ("mathematics.html", "notebooks/01_tradeoff.html"):
        page = (site / name).read_text()
        assert "<math" in page
        assert r"\mathrm" not in re.sub(r"<(annotation|script|pre).*?</\1>", "", page, flags=re.DOTALL)
    assert "<mfrac>" in (site / "mathematics.html").read_text()


def test_a_notebook_keeps_its_sliders_and_needs_no_font_from_elsewhere(site):
    page = (site / "notebooks/02_theorems.html").read_text()
    assert page.count('type="range"') == 2
    assert not re.search(r'<link[^>]*font-awesome|<i class="fa ', page)


def test_a_notebook_begins_with_a_picture_and_folds_its_setup(site):
    page = (site / "notebooks/03_task_shift.html").read_text()
    folded = re.findall(r"<details><summary>Its code</summary>(.*?)</details>", page, re.DOTALL)
    assert len(folded) == 3
    assert "EnvironmentConfig" in folded[0]
    assert "best_coefficients" in page
    assert "best_coefficients" not in "".join(folded)
    assert page.index('<img alt="Task shift') < page.index("<summary>Its code")
    assert "<details><summary>Its code" not in (site / "notebooks/05_your_own_regularizer.html").read_text()


def test_the_search_finds_no_prompts(site):
    found = json.loads((site / "search/search_index.json").read_text())["docs"]
    notebooks = [entry["text"] for entry in found if entry["location"].startswith("notebooks/")]
    assert any("CoKL" in text for text in notebooks)
    assert not [text for text in notebooks if re.search(r"(In|Out)\s*\[\d*\]:", text)]


def test_the_repository_is_one_variable(monkeypatch):
    """A link to it on every page, once the variable has an address; without one, none."""
    from mkdocs.config import load_config

    monkeypatch.setenv("REPOSITORY_URL", "https://example.org/cokl")
    assert load_config(str(ROOT / "mkdocs.yml")).repo_url == "https://example.org/cokl"


def test_the_reference_has_the_docstrings(site):
    page = (site / "reference/groups.html").read_text()
    assert "row_surrogate_loss" in page
    assert "exact under any split" in page
