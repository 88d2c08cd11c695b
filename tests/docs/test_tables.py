"""ASSUMPTIONS.md is what the source says now, and every picture that a page shows is there."""

from __future__ import annotations

import dataclasses
import re
import runpy

import pytest

from cokl.groups import SurrogateConfig
from tests.docs.pages import ROOT

PAGE = (ROOT / "ASSUMPTIONS.md").read_text(encoding="utf-8")


def test_the_page_is_up_to_date():
    assert runpy.run_path(str(ROOT / "docs" / "make_tables.py"))["page"]() == PAGE


@pytest.mark.parametrize("config", [SurrogateConfig])
def test_every_assumption_is_one_row_of_four_cells(config: type):
    """Split as Markdown splits them; the classes as Python has them."""
    rows = [re.split(r" (?<!\\)\| ", line[2:-2]) for line in PAGE.splitlines() if line.startswith("| `")]
    assert all(len(row) == 4 and all(row) for row in rows)
    declared = [field for field in dataclasses.fields(config) if "effect" in field.metadata]
    assert declared
    for field in declared:
        (row,) = [row for row in rows if row[0] == f"`{config.__name__}.{field.name}`"]
        assert row[1] == f"`{field.default}`"
        assert row[3].replace("\\|", "|") == field.metadata["effect"]


def test_what_modules_state_is_listed_below():
    _, stated = PAGE.split("\n\nFixed in the code, not configurable:\n\n")
    assert all(re.match(r"- `[\w.]+`: .", line) for line in stated.splitlines())
    assert "- `cokl.support.verdicts`: " in stated


def test_every_picture_of_the_gallery_is_there():
    gallery = ROOT / "docs" / "gallery.md"
    pictures = re.findall(r"\]\((\S+\.png)\)", gallery.read_text(encoding="utf-8"))
    assert pictures
    assert [picture for picture in pictures if not (gallery.parent / picture).is_file()] == []
