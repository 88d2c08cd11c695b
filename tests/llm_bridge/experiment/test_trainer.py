"""What the reward step asks of VeRL's reward loop: a reward model that sleeps on beside mathematics, and a count."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("verl")

import torch
from verl.protocol import DataProto

from llm_bridge.experiment import trainer as rewarded
from llm_bridge.experiment.config import PRESETS
from llm_bridge.experiment.jobs import chat_job, compose, math_job
from llm_bridge.experiment.trainer import SCORE, RewardedTrainer

CHAT = {"conversation": [{"role": "user", "content": "Hi"}]}
MATH: dict = {"conversation": [], "multiple": True}


class RewardLoop:
    """VeRL's manager as far as it goes here: it wakes its model to score, if it has one."""

    def __init__(self, verdicts) -> None:
        self.reward_model_manager: object | None = object()
        self.verdicts = verdicts
        self.woken: list[bool] = []

    def compute_rm_score(self, data):
        self.woken.append(self.reward_model_manager is not None)
        return DataProto.from_dict(
            tensors={"rm_scores": torch.zeros(len(data), 2)}, non_tensors={"verdict": np.array(self.verdicts)}
        )


def scored(monkeypatch, infos, verdicts, path=SCORE):
    jagged = torch.nested.as_nested_tensor([torch.tensor([1, 2])] * len(infos), layout=torch.jagged)
    fields = {"prompts": jagged, "responses": jagged, "extra_info": infos}
    columns = {
        name: fields.get(name, ["-"] * len(infos)) for name in ["prompts", "responses", *rewarded._REWARD_FIELDS]
    }
    monkeypatch.setattr(rewarded.tq, "kv_batch_get", lambda **options: columns)
    monkeypatch.setattr(rewarded.tq, "kv_batch_put", lambda **options: None)
    trainer = object.__new__(RewardedTrainer)
    trainer.tokenizer = SimpleNamespace(pad_token_id=0)
    trainer.config = SimpleNamespace(reward=SimpleNamespace(custom_reward_function=SimpleNamespace(path=path)))
    trainer.reward_loop_manager = loop = RewardLoop(verdicts)

    class Batch(SimpleNamespace):
        def __len__(self):
            return len(infos)

    trainer._compute_reward_colocate(Batch(keys=["k"] * len(infos), partition_id="train"))
    assert loop.reward_model_manager is not None  # for the next batch
    return loop.woken


@pytest.mark.parametrize(
    ("infos", "path", "woken"),
    [
        ([MATH, MATH], SCORE, False),
        ([MATH, CHAT], SCORE, True),
        ([{}, {}], SCORE, False),
        ([MATH, MATH], "/home/me/my_reward.py", True),  # whatever such a function asks its model
    ],
)
def test_mathematics_alone_wakes_no_reward_model(monkeypatch, infos, path, woken):
    assert scored(monkeypatch, infos, ["correct"] * len(infos), path) == [woken]


def test_the_experiments_jobs_name_the_function_that_is_meant(tmp_path):
    config = PRESETS["qwen3-0.6b"]
    for job in (math_job(config, tmp_path, "model"), chat_job(config, tmp_path, tmp_path, "cokl")):
        assert compose(job).reward.custom_reward_function.path == SCORE
