"""The gallery shows every picture of the repository, with a command that the command line knows."""

import shlex

import pytest

from cokl_cli import gallery
from cokl_cli.app import _parse
from figures.style import read_captions


def test_the_page_is_up_to_date():
    assert gallery.PAGE.read_text(encoding="utf-8") == gallery.page()


def test_every_picture_is_in_it():
    pictures = {path.stem for path in gallery.RENDERED.glob("*.png")}
    assert pictures <= {entry.name for entry in gallery.entries()}
    text = gallery.page()
    assert all(f"](../figures/rendered/{name}.png)" in text for name in pictures)


def test_every_picture_says_what_it_shows():
    captions = read_captions(gallery.RENDERED)
    assert [path.stem for path in gallery.RENDERED.glob("*.png") if not captions.get(path.stem)] == []


@pytest.mark.parametrize("command", sorted({entry.command for entry in gallery.entries()}))
def test_every_command_parses(command: str):
    name, *arguments = shlex.split(command)
    assert name == "cokl"
    assert callable(_parse(arguments).run)
