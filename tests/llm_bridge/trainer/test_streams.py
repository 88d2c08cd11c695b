"""The bookkeeping of a step's rows, against what their keys say: every key here names its own stream and prompt."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cokl import methods
from cokl.groups import RegularizationRows, SurrogateConfig
from cokl.responses.buffer import CachedGroup
from llm_bridge.trainer.streams import Minibatch, Origin, requests

CACHED, FRESH = 3, 2


def cached_group(number: int) -> CachedGroup:
    responses = [np.arange(1, 2 + member) + 10 * number for member in range(CACHED)]
    return CachedGroup(
        prompt=[{"role": "user", "content": f"question {number}"}],
        data_source="math_train",
        ground_truth=str(number),
        prompt_ids=np.array([number, 7]),
        response_ids=responses,
        log_probs=[np.full(len(ids), -0.5, dtype=np.float32) for ids in responses],
        rewards=np.array([1, 0, 1]),
    )


@st.composite
def steps(draw):
    """A minibatch, and the keys of a step in any order, of which some added rows were lost."""
    prompts = draw(st.integers(1, 4))
    uids = {f"reference-{p}-{m}": Origin("reference", p) for p in range(prompts) for m in range(CACHED)}
    uids |= {f"rollout-{p}": Origin("rollout", p) for p in range(prompts)}
    keys = [f"{uid}_{s}_0" for uid, place in uids.items() for s in range(1 if place.stream == "reference" else FRESH)]
    lost = draw(st.sets(st.sampled_from(keys), max_size=3))
    rl = [f"rl-{row}_0_0" for row in range(draw(st.integers(1, 9)))]
    order = draw(st.permutations([key for key in keys if key not in lost] + rl))
    return Minibatch(uids, CACHED + FRESH), list(order), lost


@st.composite
def training_steps(draw):
    """A minibatch of two drawn prompts and some of the RL batch's own, and the keys of a step in any order."""
    cached = draw(st.lists(st.booleans(), min_size=1, max_size=6))
    training = {f"rl-{place}": cached_group(place) if known else None for place, known in enumerate(cached)}
    rows, minibatch = requests([cached_group(70), cached_group(80)], training, ("reference", "rollout"), FRESH, step=3)
    keys = [f"{uid}_{session}_0" for uid in training for session in range(FRESH)]
    keys += [f"{row['uid']}_{s}_0" for row in rows for s in range(1 if "cached_response" in row else FRESH)]
    return training, rows, minibatch, list(draw(st.permutations(keys)))


def questions_of(rows: list[dict]) -> dict[str, str]:
    return {row["uid"]: row["raw_prompt"][0]["content"] for row in rows} | {
        f"rl-{place}": f"question {place}" for place in range(9)
    }


@given(step=training_steps())
def test_a_training_prompts_rows_are_its_own_and_its_cached_responses(step):
    training, rows, minibatch, keys = step
    questions, known = questions_of(rows), sum(group is not None for group in training.values())
    assert minibatch.asked() == len(rows) == 2 * (CACHED + 1) + known * CACHED
    assert not any(key.startswith("rl") for key in minibatch.added(keys))
    index = minibatch.index(keys)
    assert index.reference.shape == (2 + known, CACHED)
    assert index.rollout.shape == (2 + known, FRESH)
    for line in torch.cat(index, dim=1).tolist():
        assert len({questions[keys[row].split("_")[0]] for row in line}) == 1
    indexed = {keys[row].split("_")[0] for row in index.rollout.flatten().tolist()}
    assert {uid for uid in indexed if uid in training} == {uid for uid, group in training.items() if group}
    logged = minibatch.metrics(keys, [1.0] * len(keys), [1] * len(keys))
    assert logged["cokl/added_tokens"] == 2 * (CACHED + FRESH) + known * CACHED
    assert logged["cokl/not_regularized"] == pytest.approx(1 - known / len(training))


@given(step=training_steps(), count=st.integers(1, 3), lost=st.sets(st.integers(0, 40), max_size=3))
def test_mini_batches_have_room_for_each_training_prompt_with_its_cached_responses(step, count, lost):
    training, rows, minibatch, keys = step
    kept = [key for place, key in enumerate(keys) if place not in lost]
    parts = minibatch.mini_batches(kept, count)
    assert sorted(key for part in parts for key in part) == sorted(kept)
    homes: dict[str, set[int]] = {}
    questions = questions_of(rows)
    for number, part in enumerate(parts):
        for key in part:
            homes.setdefault(questions[key.split("_")[0]], set()).add(number)
        own = sum(key.startswith("rl") for key in part)
        assert own <= -(-len(training) // count) * FRESH
        assert len(part) <= -(-len(training) // count) * (FRESH + CACHED) + -(-2 // count) * (FRESH + CACHED)
    assert all(len(home) == 1 for home in homes.values())


@given(step=steps())
def test_rows_are_told_apart_by_their_keys(step):
    minibatch, keys, _ = step
    assert minibatch.added(keys) == [key for key in keys if not key.startswith("rl")]
    for stream in ("reference", "rollout"):
        assert minibatch.added(keys, stream) == [key for key in keys if key.startswith(stream)]


@given(step=steps())
def test_a_prompt_that_lost_a_row_is_left_out_whole(step):
    minibatch, keys, lost = step
    broken = {key.split("_")[0].split("-")[1] for key in lost}
    expected = [key for key in keys if not key.startswith("rl") and key.split("_")[0].split("-")[1] not in broken]
    index = minibatch.index(keys)
    assert sorted(keys[row] for table in index for row in table.flatten().tolist()) == sorted(expected)
    for stream, table in index._asdict().items():
        for line in table.tolist():
            assert len({keys[row].split("_")[0].split("-")[1] for row in line}) == 1
            assert all(keys[row].startswith(stream) for row in line)


@given(step=steps(), count=st.integers(1, 3))
def test_mini_batches_keep_prompts_together_and_share_rl_rows(step, count):
    minibatch, keys, _ = step
    parts = minibatch.mini_batches(keys, count)
    assert sorted(key for part in parts for key in part) == sorted(keys)
    homes: dict[str, set[int]] = {}
    for number, part in enumerate(parts):
        for key in minibatch.added(part):
            homes.setdefault(key.split("_")[0].split("-")[1], set()).add(number)
    assert all(len(home) == 1 for home in homes.values())
    shares = [sum(key.startswith("rl") for key in part) for part in parts]
    assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize(
    ("streams", "per_prompt", "group_rows"),
    [
        (("reference", "rollout"), CACHED + 1, CACHED + FRESH),
        (("reference",), CACHED, CACHED),
        (("rollout",), 1, FRESH),
    ],
)
def test_verl_is_asked_for_cached_and_fresh_responses(streams, per_prompt, group_rows):
    groups = [cached_group(4), cached_group(9)]
    rows, minibatch = requests(groups, {}, streams, FRESH, step=3)
    assert len(rows) == 2 * per_prompt == len(minibatch.origins)
    assert minibatch.group_rows == group_rows
    for row in rows:
        origin = minibatch.origins[row["uid"]]
        assert "_" not in row["uid"]
        assert row["raw_prompt"] == groups[origin.prompt].prompt
        assert row["reward_model"]["ground_truth"] == groups[origin.prompt].ground_truth
        assert ("cached_response" in row) == (origin.stream == "reference") == (row.get("agent_name") is not None)
    cached = [row["cached_response"] for row in rows if "cached_response" in row]
    if "reference" in streams:
        expected = [(ids.tolist(), float(reward)) for g in groups for ids, reward in zip(g.response_ids, g.rewards)]  # noqa: B905
        assert [(response["response_ids"], response["reward"]) for response in cached] == expected


def test_a_tools_tokens_have_no_part_in_a_cached_responses_likelihood():
    group = replace(cached_group(4), masks=[np.array([1]), np.array([0, 1]), np.array([1, 0, 0])])
    rows, minibatch = requests([group], {}, ("reference", "rollout"), FRESH, step=3)
    assert list(minibatch.cached.values()) == [-0.5, -0.5, -0.5]
    cached = [row["cached_response"] for row in rows if "cached_response" in row]
    assert [list(response["mask"]) for response in cached] == [[1], [0, 1], [1, 0, 0]]


def test_what_a_prompts_judge_is_told_is_as_the_data_set_has_it():
    group = replace(cached_group(4), extra_info={"index": 77}, ground_truth={"answer": [4]})
    rows, _ = requests([group], {}, ("reference", "rollout"), FRESH, 3, {"agent_name": "judged"})
    assert [row["agent_name"] for row in rows] == ["cached_response"] * CACHED + ["judged"]
    for row in rows:
        assert (row["extra_info"], row["index"]) == ({"index": 77}, 0)
        assert row["reward_model"]["ground_truth"] == {"answer": [4]}


def test_the_logged_means_count_each_response_and_each_group():
    minibatch = Minibatch({"a": Origin("rollout", 0), "b": Origin("rollout", 1), "c": Origin("reference", 0)}, 3)
    keys = ["rl_0_0", "a_0_0", "a_1_0", "b_0_0", "b_1_0", "c_0_0"]
    rewards, tokens = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0], [99, 4, 6, 2, 2, 11]
    expected = {"cokl/response_length": 5.0, "cokl/reward_mean": 0.25, "cokl/zero_correct": 0.5}
    expected["cokl/added_tokens"] = 4 + 6 + 2 + 2 + 11
    assert minibatch.metrics(keys, rewards, tokens) == expected


def weights_of(minibatch: Minibatch, keys: list[str], beta: float, length: str, tokens: list[float]) -> list[float]:
    """CoKL's weights of correct rows whose policy is the one that sampled them."""
    ones = torch.ones(len(keys), dtype=torch.float64)
    rows = RegularizationRows(minibatch.index(keys), -3 * ones, ones, tokens=torch.tensor(tokens, dtype=torch.float64))
    return methods.get("cokl").row_weights(rows, beta, SurrogateConfig(), length).tolist()


def test_weights_average_over_the_whole_groups_only():
    uids = {f"{stream}-{prompt}": Origin(stream, prompt) for stream in ("reference", "rollout") for prompt in (0, 1)}
    keys = [f"{uid}_{member}_0" for uid in uids for member in range(2)]
    minibatch, tokens = Minibatch(uids, 4), [1.0] * 8
    # beta 2, two groups, two correct responses each: 2 / 2 / 2 of either sign.
    everything = weights_of(minibatch, keys, 2.0, "token-sum", tokens)
    assert everything == [-0.5 if key.startswith("reference") else 0.5 for key in keys]
    kept = [key for key in keys if key != "rollout-1_0_0"]
    without = weights_of(minibatch, kept, 2.0, "token-sum", tokens[:7])
    assert without == [(-1.0 if key.startswith("reference") else 1.0) if "-0_" in key else 0.0 for key in kept]
    assert weights_of(minibatch, keys[:1], 2.0, "token-sum", [1.0]) == [0.0]


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        ("token-sum", [-0.5, -0.5, 0.5, 0.5]),
        ("token-mean", [-0.5 / 2, -0.5 / 6, 0.5 / 1, 0.5 / 9]),
        ("group-mean", [-0.5 / 4, -0.5 / 4, 0.5 / 5, 0.5 / 5]),
    ],
)
def test_lengths_divide_the_weights_of_their_own_row_or_group(length, expected):
    uids = {"c": Origin("reference", 0), "d": Origin("reference", 0), "f": Origin("rollout", 0)}
    keys = ["c_0_0", "d_0_0", "f_0_0", "f_1_0"]
    got = weights_of(Minibatch(uids, 4), keys, 1.0, length, [2.0, 6.0, 1.0, 9.0])
    assert got == pytest.approx(expected, rel=1e-12)


def test_weights_after_a_step_have_the_clipped_ratio():
    minibatch = Minibatch({"a": Origin("rollout", 0)}, 2)
    current, sampled = (torch.tensor(values, dtype=torch.float64) for values in ([-0.9, -3.0], [-1.0, -1.0]))
    rows = RegularizationRows(minibatch.index(["a_0_0", "a_1_0"]), current, torch.ones(2), sampled)
    moved = methods.get("cokl_without_term1").row_weights(rows, 1.0, SurrogateConfig(0.2))
    ratios = [np.exp(0.1), 0.8]
    assert moved.tolist() == pytest.approx([ratio / sum(ratios) for ratio in ratios], rel=1e-12)
