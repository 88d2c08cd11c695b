"""ASSUMPTIONS.md is what the source says now, and every picture that a page shows is there."""

from __future__ import annotations

import re
import runpy

from tests.docs.pages import ROOT

PAGE = (ROOT / "ASSUMPTIONS.md").read_text(encoding="utf-8")


def test_the_page_is_up_to_date():
    assert runpy.run_path(str(ROOT / "docs" / "make_tables.py"))["page"]() == PAGE


def test_every_picture_of_the_gallery_is_there():
    gallery = ROOT / "docs" / "gallery.md"
    pictures = re.findall(r"\]\((\S+\.png)\)", gallery.read_text(encoding="utf-8"))
    assert pictures
    assert [picture for picture in pictures if not (gallery.parent / picture).is_file()] == []
