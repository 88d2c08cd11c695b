"""What tables and figures call a method is accepted wherever its name is, and stored as the name."""

from __future__ import annotations

import pytest

from bandit.engine.tables import method_label
from bandit.labs import labs
from cokl import methods, regularizers
from cokl.names import CALLED, canonical
from cokl.support.errors import InputError
from cokl.support.options import from_json

SHOWN = {method_label(name): name for name in ("none", *regularizers.names(), "cokl_floor", "reverse_kl_floor")}
"""Labels of figures and tables, and the names that results are stored under."""
FLOORED = "correct_forward_kl_floor"


@pytest.mark.parametrize("label", SHOWN)
def test_every_label_is_a_name(label):
    for typed in (label, label.lower(), label.upper(), label.replace(" ", "-"), label.replace(" ", "_"), SHOWN[label]):
        assert methods.get(typed).name == canonical(typed) == SHOWN[label]


def test_replay_is_a_name_of_the_registry_and_of_the_methods():
    assert regularizers.get("replay") is regularizers.get("correct_forward_kl")
    assert methods.get("replay") == methods.get("correct_forward_kl")
    assert (methods.get("Replay").name, methods.get("replay_floor").name) == ("correct_forward_kl", FLOORED)
    assert methods.get("CoKL w/o term 2").name == methods.get("correct-only forward KL").name == "correct_forward_kl"
    assert "replay" not in regularizers.names()


def test_what_we_call_them_leads_to_methods_that_exist():
    assert {methods.get(name).name for name in CALLED.values()} == {*regularizers.names(), "none"}


@pytest.mark.parametrize("name", ["none", "grpo", "chi_square", "MyKL", "replayed", "", "_floor"])
def test_other_names_stay_as_they_are(name):
    assert canonical(name) == name


@pytest.mark.parametrize("name", labs())
def test_every_lab_stores_the_name(name):
    preset = labs()[name].presets["paper"]
    typed = {field: ["none", "Replay", "cokl"] for field in ("methods", "kl_sweep_methods") if hasattr(preset, field)}
    if hasattr(preset, "sweep"):
        typed = {"sweep": preset.sweep.as_dict() | {"methods": ["none", "Replay", "cokl"]}}
    stored = from_json(type(preset), preset.as_dict() | typed).as_dict()
    for field in typed:
        kept = stored[field]["methods"] if field == "sweep" else stored[field]
        assert kept == ("none", "correct_forward_kl", "cokl")


def test_a_method_under_both_of_its_names_is_named_twice():
    with pytest.raises(InputError, match="methods: expected different values, got correct_forward_kl,correct_forward"):
        from_json(type(labs()["sweep"].presets["quick"]), {"methods": ["replay", "correct_forward_kl"]})
