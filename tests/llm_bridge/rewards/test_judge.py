"""One judge for cached and for fresh responses: the same function, told the same of each, on VeRL's way too."""

from __future__ import annotations

import copy
import json

import pandas as pd
import pytest

pytest.importorskip("verl")

import numpy as np
import torch
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.protocol import DataProto

from cokl.support.errors import InputError
from llm_bridge.buffer.bring_buffer import bring_buffer
from llm_bridge.buffer.groups import Buffer, model_fingerprint
from llm_bridge.rewards.judge import load_function, reward_of
from tests.llm_bridge.toy import make_model, make_tokenizer

TEXTS = ["4", "5"]
FUNCTION = """
ASKED = []


{kind} judge(data_source, solution_str, ground_truth, extra_info):
    ASKED.append((data_source, solution_str, ground_truth, dict(extra_info)))
    extra_info["index"] = "spoilt"  # as VeRL's reward managers write into theirs
    return {{"score": 2.0 if "4" in solution_str else -1.0}}
"""


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("truth", ["4", 4, 4.5, ["4", "5"], {"answer": "4", "within": [0.1, 2]}])
def test_a_cached_and_a_fresh_response_are_judged_alike(tmp_path, kind, truth):
    function = tmp_path / "my_judge.py"
    function.write_text(FUNCTION.format(kind=kind))
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    make_model(tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    row = {
        "prompt": [{"role": "user", "content": "2 + 2"}],
        "data_source": "sums",
        "extra_info": {"index": 77, "tolerances": [0.5]},
    }
    given = {
        "prompt": row["prompt"],
        "data_source": row["data_source"],
        "ground_truth": truth if isinstance(truth, str) else json.dumps(truth),
        "ground_truth_is_json": not isinstance(truth, str),
        "extra_info": json.dumps(row["extra_info"]),
    }
    rows = [given | {"response_ids": [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]} for text in TEXTS]
    pd.DataFrame(rows).to_parquet(tmp_path / "responses.parquet")
    name = f"{function}:judge"
    judge = load_function(name)
    bring_buffer(tmp_path / "responses.parquet", str(tmp_path / "model"), judge).save(tmp_path / "buffer.parquet")
    buffer = Buffer.load(tmp_path / "buffer.parquet", model_fingerprint(tmp_path / "model"))
    assert buffer.groups[0].rewards.tolist() == [1, 0]
    # The same texts as fresh responses, by VeRL's own manager of rewards.
    columns = {"data_source": "sums", "reward_model": {"ground_truth": truth}, "extra_info": row["extra_info"]}
    manager = NaiveRewardManager(None, tokenizer, judge)
    scores = []
    for tokens in (tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS):
        tensors = {"responses": torch.tensor([tokens]), "attention_mask": torch.ones(1, len(tokens), dtype=torch.int64)}
        objects = {key: np.empty(1, dtype=object) for key in columns}
        for key, value in columns.items():
            objects[key][0] = copy.deepcopy(value)
        given = manager.run_single(DataProto.from_dict(tensors, non_tensors=objects))
        scores.append(manager.loop.run_until_complete(given)["reward_extra_info"]["score"])
    assert scores == [2.0, -1.0]
    told = judge.__globals__["ASKED"]
    assert [answer[:3] for answer in told[:2]] == [answer[:3] for answer in told[2:]]
    assert told[0] == ("sums", "4", truth, {"index": 77, "tolerances": [0.5]})


@pytest.mark.parametrize("given", [{"points": 1.0}, "right", None, float("nan"), {"score": float("inf")}])
def test_an_answer_without_a_score_is_one_line(given):
    with pytest.raises(InputError, match=r"expected a finite number, or a dictionary with one at 'score'"):
        reward_of(lambda **arguments: given, "4", "sums", "4", {})


def stops(**_arguments):
    raise SystemExit


@pytest.mark.parametrize("function", [lambda **_: 1 / 0, stops])
def test_a_function_that_fails_is_one_line(function):
    """Also one that would end the command without a word."""
    with pytest.raises(
        InputError, match=r"the reward function's answer to '4': .*, got (ZeroDivision|System)E"
    ) as raised:
        reward_of(function, "4", "sums", "4", {})
    assert "\n" not in str(raised.value)


def test_a_file_that_ends_the_command_is_one_line(tmp_path):
    (tmp_path / "ending_judge.py").write_text("import sys; sys.exit()")
    with pytest.raises(InputError, match=r"ending_judge.py:judge': .*ending_judge.py ends with SystemExit"):
        load_function(f"{tmp_path / 'ending_judge.py'}:judge")


def test_a_file_that_python_cannot_read_is_told_with_pythons_reason(tmp_path):
    (tmp_path / "spoilt_judge.py").write_text("import nowhere_to_be_found\n")
    with pytest.raises(InputError, match="No module named 'nowhere_to_be_found'"):
        load_function(f"{tmp_path / 'spoilt_judge.py'}:judge")


def test_a_package_that_cannot_be_imported_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "spoilt_package.py").write_text("import math\nmath.absent\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="spoilt_package ends with AttributeError: module 'math' has no"):
        load_function("pkg://spoilt_package:judge")


def test_verls_own_dispatch_judges():
    dispatched = load_function("pkg://verl.utils.reward_score:default_compute_score")
    assert [reward_of(dispatched, f"#### {number}", "openai/gsm8k", "4", {}) for number in (4, 5)] == [1.0, 0.0]


def test_a_function_of_another_form_is_refused():
    with pytest.raises(InputError, match="VeRL calls it with data_source, solution_str, ground_truth, extra_info as"):
        load_function("pkg://verl.utils.reward_score.gsm8k:compute_score")
