"""Dual-anchor normalization of anyone's scores."""

import pandas as pd
import pytest

from cokl.support.errors import InputError
from llm_bridge.report.normalize import normalize, reversed_anchors


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
