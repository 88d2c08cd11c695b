"""The bookkeeping of a step's rows, against what their keys say: every question here names its own prompt."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("verl")

import torch
from verl.utils import tensordict_utils as tu

from cokl.regularizers.base import Stream
from llm_bridge.buffer.groups import CachedGroup
from llm_bridge.trainer.rows import ask, join, scores_of_function, uid_of
from llm_bridge.trainer.step import row_sums

CACHED, FRESH = 3, 2
BOTH: tuple[Stream, ...] = ("reference", "rollout")


def cached_group(number: int) -> CachedGroup:
    responses = [np.arange(1, 2 + member) + 10 * number for member in range(CACHED)]
    return CachedGroup(
        prompt=[{"role": "user", "content": f"question {number}"}],
        data_source="math_train",
        ground_truth=str(number),
        prompt_ids=np.array([number, 7]),
        response_ids=responses,
        masks=[np.array([1, *[0] * (len(ids) > 1), *[1] * (len(ids) - 2)]) for ids in responses],
        rewards=np.array([1, 0, 1]),
    )


@st.composite
def steps(draw):
    """A step of drawn or of training prompts: its rows, its questions by uid, and its keys in any order, some lost."""
    drawn = draw(st.integers(0, 4))
    known = [] if drawn else draw(st.lists(st.booleans(), min_size=1, max_size=6))
    training = {f"rl{place}": cached_group(place) if cached else None for place, cached in enumerate(known)}
    rows, step = ask([cached_group(70 + number) for number in range(drawn)], training, BOTH, FRESH, step=3)
    questions = {row["uid"]: row["raw_prompt"][0]["content"] for row in rows}
    rl = [f"rl{place}" for place in range(len(known) or draw(st.integers(1, 5)))]
    questions |= {uid: f"question {uid[2:]}" for uid in rl}
    keys = [f"{uid}_{session}_0" for uid in rl for session in range(FRESH)] + [f"{row['uid']}_0_0" for row in rows]
    lost = draw(st.sets(st.sampled_from(keys), max_size=3))
    return rows, step, questions, draw(st.permutations([key for key in keys if key not in lost]))


@given(steps())
def test_every_whole_group_is_indexed_and_no_other(drawn):
    _, step, questions, keys = drawn
    sizes: dict[str, list[str]] = {}
    for key in keys:
        if step.member(key):
            sizes.setdefault(questions[uid_of(key)], []).append(key)
    whole = {question for question, members in sizes.items() if len(members) == CACHED + FRESH}
    reference, rollout = step.index(keys)
    assert len(reference) == len(rollout) == len(whole)
    for cached, fresh in zip(reference.tolist(), rollout.tolist(), strict=True):
        members = [keys[row] for row in [*cached, *fresh]]
        (question,) = {questions[uid_of(key)] for key in members}
        assert question in whole
        assert [step.member(key).stream for key in members] == ["reference"] * CACHED + ["rollout"] * FRESH


@given(steps(), st.integers(1, 3))
def test_mini_batches_hold_whole_groups_and_equal_shares(drawn, count):
    _, step, questions, keys = drawn
    if step.training:
        return
    parts = step.mini_batches(keys, count)
    assert sorted(key for part in parts for key in part) == sorted(keys)
    groups = [{questions[uid_of(key)] for key in part if step.member(key)} for part in parts]
    assert sum(map(len, groups)) == len(set().union(*groups))
    rl = [len({uid_of(key) for key in part if not step.member(key)}) for part in parts]
    assert max(rl) - min(rl) <= 1


@given(steps())
def test_cached_rows_bring_their_response_and_fresh_ones_are_told_apart(drawn):
    rows, step, questions, _ = drawn
    assert [row["uid"] for row in rows] == [uid for uid in step.members if uid not in step.training]
    assert len(rows) == step.asked
    for row in rows:
        number = int(row["raw_prompt"][0]["content"].split()[1])
        assert (questions[row["uid"]], row["__rollout_n__"]) == (f"question {number}", 1)
        if step.member(row["uid"]).stream == "reference":
            cached = row["cached_response"]
            assert cached["response_ids"][0] == 10 * number + 1
            assert cached["mask"][1:2] == [0] * (len(cached["response_ids"]) > 1)
    fresh = [(row["index"], row["cokl_member"]) for row in rows if "cokl_member" in row]
    assert len(set(fresh)) == len(fresh)


def test_the_joined_batch_has_every_row_and_its_own_values():
    batch = tu.get_tensordict({"raw_prompt": [["a"], ["b"]], "uid": ["x", "y"]})
    tu.assign_non_tensor_data(batch, "global_steps", 4)
    joined = join(batch, [{"uid": "z", "agent_name": "cached_response"}], {"agent_name": "single"})
    assert list(joined["uid"]) == ["x", "y", "z"]
    assert list(joined["agent_name"]) == ["single", "single", "cached_response"]
    assert list(joined["raw_prompt"]) == [["a"], ["b"], None]
    assert joined["global_steps"] == 4
    assert list(batch["uid"]) == ["x", "y"]


def test_what_a_function_says_under_a_penalty_is_its_score_and_else_its_accuracy():
    """VeRL's reward is the score; an accuracy beside it may be on another scale."""
    said = [{"acc": 1.0, "score": -0.5}, {"acc": 0.25}, {}, None]
    told = [{"reward_extra_info": one} for one in said]
    assert scores_of_function(torch.tensor([9.0, 8.0, 7.0, 6.0]), told).tolist() == [-0.5, 0.25, 7.0, 6.0]


def test_a_rows_log_likelihood_is_of_the_tokens_that_the_policy_wrote():
    rows = torch.tensor([-1.0, -2.0, -4.0]), torch.tensor([-8.0])
    masks = torch.tensor([1, 0, 1]), torch.tensor([1])
    assert row_sums(rows, masks).tolist() == [-5.0, -8.0]
