"""`make fuzz`, besides the properties of the losses: what is no policy, mutated files, answers of a model."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bandit.sweep.config import SweepConfig
from cokl.policy import Policy
from cokl.support.errors import InputError
from cokl.support.files import read_json, read_parquet
from cokl.support.options import from_json
from llm_bridge.rewards.score import without_thinking
from llm_bridge.rewards.verifier import _boxes
from tests.cokl.cases import VARIANTS, Case

pytestmark = pytest.mark.fuzz


@given(
    logits=st.sampled_from(["int", "bool", "float16", "empty", "scalar", "nan", "longer", "flat"]),
    name=st.sampled_from(list(VARIANTS)),
)
def test_what_is_no_policy_gives_the_documented_error_or_a_number(logits: str, name: str):
    good = torch.zeros(2, 3)
    correct = Case(np.zeros((2, 3)), np.zeros((2, 3)), np.eye(2, 3, dtype=bool)).correct()
    bad = {
        "int": good.long(), "bool": good.bool(), "float16": good.half(), "empty": good[:0], "scalar": torch.tensor(1.0),
        "nan": good + math.nan, "longer": torch.zeros(2, 5), "flat": torch.zeros(3),
    }[logits]  # fmt: skip
    try:
        value = VARIANTS[name].value(Policy(bad, correct), Policy(good.double(), correct))
    except (ValueError, TypeError, RuntimeError, IndexError):
        value = torch.zeros(0)
    assert logits == "nan" or not bool(value.isnan().any())


def mutated(content: bytes, cuts: list[tuple[int, bytes]]) -> bytes:
    """The file with pieces of it overwritten, and cut off at the last of them if that is empty."""
    changed = bytearray(content)
    for place, piece in cuts:
        at = place % (len(changed) + 1)
        changed[at : at + len(piece)] = piece
        if not piece:
            del changed[at:]
    return bytes(changed)


mutations = st.lists(
    st.tuples(
        st.integers(0, 10**5),
        st.one_of(
            st.binary(max_size=4), st.sampled_from([b",", b'"', b"\n", b"nan", b"1e999", b"-", b"\0", b"{", b"["])
        ),
    ),
    min_size=1,
    max_size=5,
)
CONFIG = json.dumps(SweepConfig().as_dict()).encode()
TABLE = io.BytesIO()
pd.DataFrame({"method": ["none", "cokl"], "p_correct": [0.5, math.nan]}).to_parquet(TABLE, index=False)


@given(cuts=mutations)
def test_files_from_outside(tmp_path_factory, cuts):
    """Each is read, or refused in one line."""
    path: Path = tmp_path_factory.getbasetemp() / "mutated"
    for content, read in (
        (CONFIG, lambda: from_json(SweepConfig, read_json(path, dict))),
        (TABLE.getvalue(), lambda: read_parquet(path)),
    ):
        path.write_bytes(mutated(content, cuts))
        said = ""
        try:
            read()
        except InputError as error:
            said = str(error)
        assert "\n" not in said


@given(parts=st.lists(st.one_of(st.text(max_size=8), st.sampled_from(
    ["\\boxed{", "\\boxed", "\\fbox{", "}", "{", "\\{", "\\}", "<think>", "</think>", "$", "\\text{", "42", "\\frac"]
)), max_size=40))  # fmt: skip
def test_answers_of_a_model(parts: list[str]):
    answer = "".join(parts)
    found = _boxes(answer)
    assert isinstance(found, str) or all(box in answer for box in found)
    assert len(without_thinking(answer)) <= len(answer)
