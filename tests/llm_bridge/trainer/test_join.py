"""The joint batch, column by column, from VeRL's own collation."""

import numpy as np
import pytest
import torch

pytest.importorskip("verl")

from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn

from llm_bridge.trainer.join import join

DEFAULTS = {"agent_name": "single_turn_agent", "__rollout_n__": 8}


def prompts(**columns):
    """Two prompts as VeRL's dataset gives them, with a column that only the user knows."""
    rows = [
        {
            "raw_prompt": [{"role": "user", "content": f"question {row}"}],
            "dummy_tensor": torch.tensor([row + 1]),
            "uid": f"uid-{row}",
            "split": {"of": "the user", "row": row},
            **{name: values[row] for name, values in columns.items()},
        }
        for row in range(2)
    ]
    batch = tu.get_tensordict(collate_fn(rows))
    tu.assign_non_tensor_data(batch, "global_steps", 5)
    return batch


def values(batch, name):
    return [value.data for value in batch[name].unbind(0)] if not isinstance(batch[name], list) else list(batch[name])


ADDED: list[dict] = [
    {"uid": "a", "raw_prompt": [{"role": "user", "content": "q"}], "agent_name": "cached_response",
     "__rollout_n__": 1, "cached_response": {"response_ids": [1, 2]}},
    {"uid": "b", "raw_prompt": [{"role": "user", "content": "r"}]},
]  # fmt: skip


def test_both_kinds_of_prompts_are_in_one_batch():
    batch = prompts()
    joint = join(batch, ADDED, DEFAULTS)
    assert len(joint) == 4
    assert joint["dummy_tensor"].tolist() == [[1], [2], [0], [0]]
    assert list(joint["uid"]) == ["uid-0", "uid-1", "a", "b"]
    assert list(joint["agent_name"]) == ["single_turn_agent"] * 2 + ["cached_response", "single_turn_agent"]
    assert list(joint["__rollout_n__"]) == [8, 8, 1, 8]
    assert list(joint["split"]) == [{"of": "the user", "row": 0}, {"of": "the user", "row": 1}, None, None]
    assert list(joint["cached_response"]) == [None, None, {"response_ids": [1, 2]}, None]
    assert [message[0]["content"] for message in joint["raw_prompt"]] == ["question 0", "question 1", "q", "r"]
    assert tu.get(joint, "global_steps") == 5


def test_the_users_own_agent_loops_stay():
    joint = join(prompts(agent_name=np.array(["tool_agent", "single_turn_agent"])), ADDED, DEFAULTS)
    assert list(joint["agent_name"])[:2] == ["tool_agent", "single_turn_agent"]


@pytest.mark.parametrize("rows", [ADDED, ADDED[:1]])
def test_neither_argument_is_changed(rows):
    batch, before = prompts(), [dict(row) for row in rows]
    columns = set(batch.keys())
    join(batch, rows, DEFAULTS)
    assert set(batch.keys()) == columns
    assert len(batch) == 2
    assert rows == before


def test_it_survives_verls_split_over_workers():
    pieces = join(prompts(), ADDED, DEFAULTS).chunk(2)
    assert [list(piece["uid"]) for piece in pieces] == [["uid-0", "uid-1"], ["a", "b"]]
    assert all(tu.get(piece, "global_steps") == 5 for piece in pieces)
