"""The page with a section for each lab: its commands are those of the command line, and no lab is missing."""

import re

import pytest

from cokl_cli.app import _parse
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/how-to/labs.md").read_text()
SECTIONS = {title: text for title, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)}
LABS = ["sweep", "shift", "plasticity", "finite-group", "sequences", "robustness", "card"]


def commands(text: str) -> list[str]:
    return re.findall(r"^cokl (.+)$", text, re.MULTILINE)


def test_every_lab_has_its_section():
    named = [command.split()[1] for text in SECTIONS.values() for command in commands(text)]
    assert named == LABS


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_asks_a_question_and_its_command_exists(title):
    assert title.endswith("?")
    (command,) = commands(SECTIONS[title])
    assert type(_parse(command.split())).__name__
    assert len(SECTIONS[title].split("```")[-1].split()) > 10  # how to read it
