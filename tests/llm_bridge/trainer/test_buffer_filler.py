"""What the making of a buffer asks of VeRL, and what it keeps."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("verl")

from omegaconf import OmegaConf

from cokl.support.errors import InputError
from llm_bridge.buffer.groups import Buffer, CachedGroup, model_fingerprint
from llm_bridge.trainer import buffer_filler
from llm_bridge.trainer.buffer_filler import BufferTrainer


@pytest.fixture
def groups(monkeypatch):
    """What the trainer makes of one answer in VeRL's queue, of score 1. expected: answers that were asked for."""
    import torch

    row = {
        "uid": "000000000001",
        "prompts": torch.tensor([1, 2]),
        "responses": torch.tensor([3]),
        "rm_scores": torch.tensor([1.0]),
        "response_mask": torch.tensor([0]),
        "raw_prompt": [{"role": "user", "content": "Two numbers?"}],
        "data_source": "olympiad",
        "reward_model": {"ground_truth": "5, 7"},
        "extra_fields": {"reward_extra_info": {"acc": -0.3}},
        "extra_info": {"index": np.int64(3), "multiple": np.True_, "tolerances": np.array([0.5])},
    }

    class Column(list):
        def unbind(self):
            return list(self)

    monkeypatch.setattr(
        buffer_filler.tq, "kv_batch_get", lambda select_fields, **options: {n: Column([row[n]]) for n in select_fields}
    )

    def made(expected=1, penalty=False, **cokl):
        trainer = object.__new__(BufferTrainer)
        kwargs = {"overlong_buffer_cfg": {"enable": penalty}}
        trainer.config = OmegaConf.create(
            {"actor_rollout_ref": {"rollout": {"n": expected}}, "cokl": cokl, "reward": {"reward_kwargs": kwargs}}
        )
        return trainer._groups(SimpleNamespace(keys=["k"], partition_id="train"), ["000000000001"])

    return made


def test_a_cached_prompt_keeps_what_the_reward_function_is_told(groups):
    """Its fresh answers are judged by it: an answer with several values, or one within a tolerance."""
    (group,) = groups()
    assert [mask.tolist() for mask in group.masks] == [[0]]  # a tool wrote it
    assert group.rewards.tolist() == [1]
    assert group.extra_info == {"index": 3, "multiple": True, "tolerances": [0.5]}


def test_a_verdict_is_by_the_runs_own_threshold(groups):
    assert [groups(correct_above=threshold)[0].rewards.tolist() for threshold in (0.9, 1.0)] == [[1], [0]]


def test_a_verdict_is_the_functions_own_under_a_penalty_on_length(groups):
    """VeRL's manager adds the penalty to the score, and keeps the function's beside it; here -0.3."""
    assert [groups(penalty=penalty)[0].rewards.tolist() for penalty in (False, True)] == [[1], [0]]


def test_a_prompt_that_lost_a_response_ends_the_making_of_a_buffer(groups):
    with pytest.raises(
        InputError, match="a prompt got 1 of its 2 responses: the agent loop or the reward function failed"
    ):
        groups(expected=2)


def test_every_prompt_is_sampled_once_and_saved_for_the_model(monkeypatch, tmp_path, capsys):
    """Three prompts, two at a time, of which the last repeats the first."""
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    asked = []

    def sample(indices, chunk):
        asked.append((list(indices), chunk))
        ids = [np.array([index % 2]) for index in indices]
        prompts = [[{"role": "user", "content": str(index % 2)}] for index in indices]
        return [
            CachedGroup(prompt, "sums", "0", tokens, [tokens], np.array([index == 0]).astype(int))
            for index, prompt, tokens in zip(indices, prompts, ids, strict=True)
        ]

    rollout = SimpleNamespace(temperature=0.7)
    trainer = object.__new__(BufferTrainer)
    trainer.config = SimpleNamespace(
        actor_rollout_ref=SimpleNamespace(rollout=rollout, model=SimpleNamespace(path=str(tmp_path))),
        data=SimpleNamespace(train_batch_size=2),
        cokl=SimpleNamespace(buffer=str(tmp_path / "buffer.parquet")),
    )
    trainer.train_dataset = range(3)
    monkeypatch.setattr(trainer, "_sample", sample)
    trainer.fit(agent_loop_manager=None)
    assert asked == [([0, 1], 1), ([2], 2)]
    assert "3 prompts, 33.3% with a correct response" in capsys.readouterr().out
    buffer = Buffer.load(tmp_path / "buffer.parquet", model_fingerprint(tmp_path))
    assert (len(buffer), buffer.temperature) == (2, 0.7)
