"""The section of population optima: networks and reference of the first sweep."""

import pytest

from cokl_cli.report.sections.optima import section


def test_networks_are_shown_at_their_references_correctness(results):
    """Final correctness as the sweep was made; its reference is right one time in ten, with 12 of 200 actions."""
    made = section([results / "paper"])
    data = made.data["optima"]
    assert data["q"][data["networks_q"]] == 0.1
    assert "q is their reference's, 0.100." in made.body
    assert "here\n0.06." in made.body
    shown = {name: dict(zip(one["beta"], one["correctness"], strict=True)) for name, one in data["networks"].items()}
    assert shown["cokl"] == pytest.approx({0.001: 0.975, 0.01: 0.965, 0.1: 0.955}, abs=1e-3)
    assert shown["none"] == pytest.approx({0.0: 0.98}, abs=1e-3)
