"""Dual-anchor normalization of anyone's scores."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cokl.support.errors import InputError
from llm_bridge.report.normalize import normalize, reversed_anchors
from tests.oracles import llm_tables

MATH = ["math_val", "math500", "olympiad"]


@st.composite
def score_rows(draw) -> list[dict]:
    """Two models with anchors apart on every column, and up to three more methods, in any order."""
    score = st.integers(-9999, 9999).map(lambda value: value / 100)
    rows = []
    for model in ("small", "large"):
        base = {name: draw(score) for name in (*MATH, "chat_val")}
        gap = st.integers(1, 9999).map(lambda value: value / 100)
        grpo = {name: value + draw(st.sampled_from((-1, 1))) * draw(gap) for name, value in base.items()}
        anchors = [{"model": model, "method": "base", **base}, {"model": model, "method": "grpo", **grpo}]
        methods = draw(st.lists(st.sampled_from(("cokl", "forward_kl", "my method")), unique=True))
        others = [{"model": model, "method": name, **{c: draw(score) for c in (*MATH, "chat_val")}} for name in methods]
        rows += draw(st.permutations([*anchors, *others]))
    return rows


@settings(max_examples=20)
@given(score_rows())
def test_agrees_with_the_definition(rows):
    table = normalize(pd.DataFrame(rows), MATH)
    expected = pd.DataFrame(llm_tables.normalized(rows, MATH))
    pd.testing.assert_frame_equal(table, expected, check_like=True, rtol=1e-9, atol=1e-9)
    base = table[table["method"] == "base"][[*MATH, "chat_val"]].to_numpy()
    assert (base == [100, 100, 100, 0]).all()
    grpo = table[table["method"] == "grpo"][[*MATH, "chat_val"]].to_numpy()
    assert (grpo == [0, 0, 0, 100]).all()


@settings(max_examples=20)
@given(score_rows(), st.sampled_from([0.5, -2.0, 4.0]), st.integers(-50, 50))
def test_does_not_depend_on_a_scores_unit_and_origin(rows, scale, shift):
    frame = pd.DataFrame(rows)
    moved = frame.assign(**{name: scale * frame[name] + shift for name in (*MATH, "chat_val")})
    pd.testing.assert_frame_equal(normalize(moved, MATH), normalize(frame, MATH), rtol=1e-6, atol=1e-6)


def test_anchors_the_wrong_way_round_are_said():
    frame = pd.DataFrame(
        [["m", "base", 10.0, 5.0, 1.0], ["m", "grpo", 12.0, 4.0, 0.0]],
        columns=["model", "method", "a", "b", "chat_val"],
    )
    first, second = reversed_anchors(frame, ["a", "b"])
    assert "lost nothing on a" in first
    assert "gained nothing on chat_val" in second
    assert reversed_anchors(frame.assign(a=[12.0, 10.0], chat_val=[0.0, 1.0]), ["a", "b"]) == []


@pytest.mark.parametrize(
    ("methods", "says"),
    [
        (["cokl", "grpo"], "m: no row for the anchor method base; expected one"),
        (["base", "dapo"], "m: no row for the anchor method grpo or none; expected one"),
        (["base", "none", "grpo"], "m: more than one row for the anchor method grpo or none; expected one"),
    ],
)
def test_a_model_without_its_two_anchors_is_refused(methods, says):
    frame = pd.DataFrame([["m", name, place, 1.0 - place] for place, name in enumerate(methods)])
    with pytest.raises(InputError, match=says):
        normalize(frame.set_axis(["model", "method", "a", "chat_val"], axis=1), ["a"])


def test_anchors_that_score_the_same_are_refused():
    frame = pd.DataFrame([["m", "base", 2.0, 1.0], ["m", "grpo", 2.0, 3.0]])
    with pytest.raises(InputError, match="m, a: the anchors base and grpo score the same"):
        normalize(frame.set_axis(["model", "method", "a", "chat_val"], axis=1), ["a"])
