"""One judge for cached and for fresh responses: the same function, told the same of each, on both of VeRL's ways."""

from __future__ import annotations

import asyncio
import json

import pandas as pd
import pytest

pytest.importorskip("verl")

import numpy as np
import torch
from hydra import compose, initialize_config_module
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils import tensordict_utils as tu

from cokl.responses.buffer import Buffer, model_fingerprint
from cokl.support.errors import InputError
from llm_bridge.bring_buffer import bring_buffer
from llm_bridge.rewards.judge import Judge, load_function
from llm_bridge.tiny.model import make_model
from llm_bridge.tiny.tokenizer import make_tokenizer
from llm_bridge.trainer.agent_loop import JudgedLoop
from llm_bridge.trainer.join import join
from llm_bridge.trainer.streams import requests

TEXTS = ["4", "5"]
FUNCTION = """
ASKED = []


{kind} judge(data_source, solution_str, ground_truth, extra_info, *, strict):
    ASKED.append((data_source, solution_str, ground_truth, dict(extra_info), strict))
    extra_info["index"] = "spoilt"  # as VeRL's reward managers write into theirs
    return {{"score": 9.0, "right": 2.0 if "4" in solution_str else -1.0}}
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
    name, options = f"{function}:judge", {"strict": True}
    judge = Judge(load_function(name), "right", options, threshold=1.0)
    bring_buffer(tmp_path / "responses.parquet", str(tmp_path / "model"), judge).save(tmp_path / "buffer.parquet")
    buffer = Buffer.load(tmp_path / "buffer.parquet", model_fingerprint(tmp_path / "model"))
    assert buffer.groups[0].rewards.tolist() == [1, 0]
    asked_of: dict = {"function": name, "key": "right", "options": options}
    fresh = {"agent_name": "judged", "judge": asked_of}
    rows, _ = requests(buffer.groups, {}, ("reference", "rollout"), 2, 1, fresh)
    # The same texts as fresh responses, by the loop that returns them.
    asked_of["loop"] = "cached_response"
    prompts = tu.get_tensordict({"raw_prompt": [row["prompt"]], "uid": ["rl"], "data_source": ["other"]})
    joined = join(prompts, rows, {"agent_name": "single_turn_agent"})
    columns = {key: [value.data for value in column.unbind(0)] for key, column in joined.items()}
    asked = [{key: column[place] for key, column in columns.items()} for place in range(len(joined))]
    (question,) = [columns for columns in asked if columns["agent_name"] == "judged"]
    loop = JudgedLoop(**surroundings(tokenizer))
    scores = []
    for cached in [columns["cached_response"] for columns in asked if columns["cached_response"]]:
        answer = asyncio.run(loop.run({"logprobs": False}, **question | {"cached_response": cached, "global_steps": 1}))
        assert not isinstance(answer, list)
        scores.append(answer.as_dict()["rm_scores"].sum().item())
        assert answer.extra_fields["reward_extra_info"] == {}
    assert scores == [2.0, -1.0]
    told = load_function(name).__globals__["ASKED"]
    assert told[:2] == told[2:]
    assert told[0] == ("sums", "4", truth, {"index": 77, "tolerances": [0.5]}, True)


def surroundings(tokenizer) -> dict:
    """What VeRL makes an agent loop with."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", [])
    return {
        "trainer_config": DictConfigWrap(config),
        "server_manager": None,
        "tokenizer": tokenizer,
        "processor": None,
        "dataset_cls": None,
        "data_config": DictConfigWrap(config.data),
        "hf_model_type": "qwen3",
    }


@pytest.mark.parametrize("given", [{"points": 1.0}, "right", None, float("nan"), {"score": float("inf")}])
def test_an_answer_without_a_score_is_one_line(given):
    with pytest.raises(InputError, match=r"expected a finite number, or a dictionary with one at 'score'"):
        asyncio.run(Judge(lambda **arguments: given).score("4", "sums", "4", {}))


def test_a_number_of_any_kind_is_a_score():
    for given in (True, 1, np.float32(1.0), {"score": np.int64(1)}):
        assert asyncio.run(Judge(lambda given=given, **arguments: given).score("4", "sums", "4", {})) == 1.0


@pytest.mark.parametrize(
    ("name", "right", "options"),
    [("gsm8k", "#### 4", {}), ("math_dapo", "Answer: 4", {}), ("math_verify", "\\boxed{4}", {"timeout": 120.0})],
)
def test_verls_own_reward_functions_judge(name, right, options):
    """They take no data_source; their first parameter is solution_str or model_output."""
    judge = Judge(load_function(f"pkg://verl.utils.reward_score.{name}:compute_score"), options=options)
    scores = [asyncio.run(judge.score(text, "sums", "4", {})) for text in (right, right.replace("4", "5"))]
    assert [score > judge.threshold for score in scores] == [True, False]
    dispatched = Judge(load_function("pkg://verl.utils.reward_score:default_compute_score"))
    assert asyncio.run(dispatched.score("#### 4", "openai/gsm8k", "4", {})) == 1.0
