"""Markdown tables."""

from cokl.support.markdown import table


def test_a_cell_keeps_to_its_cell():
    written = table(("a", "b|c"), [(1, "x|y"), ("two\nlines", None)], rule=(" --- ", " ---: "))
    assert written == "| a | b\\|c |\n| --- | ---: |\n| 1 | x\\|y |\n| two lines | None |"
    assert table(("a", "b"), []) == "| a | b |\n|---|---|"
