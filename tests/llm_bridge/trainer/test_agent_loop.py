"""Seeds of single requests: what they depend on, and that no two requests of a run have one."""

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl")

from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from llm_bridge.buffer.groups import CachedGroup
from llm_bridge.experiment.rewarded import SeededLoop, request_seed
from llm_bridge.trainer.agent_loop import CachedResponseLoop
from llm_bridge.trainer.rows import ask

PROMPTS, FRESH = 3, 4


@pytest.fixture
def drawn_with(monkeypatch):
    """The seed with which vLLM is asked for a row's response, by the loop's settings and what VeRL tells it."""

    async def asked(self, sampling_params, **kwargs):
        return sampling_params["seed"]

    monkeypatch.setattr(SingleTurnAgentLoop, "run", asked)

    def seed_of(row, *, seed=0, step=1, session=0):
        loop = object.__new__(SeededLoop)
        loop.rollout_config = SimpleNamespace(seed=seed)
        return asyncio.run(loop.run({"temperature": 1.0}, **row, global_steps=step, session_id=session))

    return seed_of


def of_the_buffer():
    """The rows of fresh responses to prompts of the buffer, as the trainer asks VeRL for them: each in session 0."""
    ids = np.array([1])
    groups = [
        CachedGroup([{"role": "user", "content": str(number)}], "sums", str(number), ids, [ids], np.array([1]))
        for number in range(PROMPTS)
    ]
    rows, _ = ask(groups, {}, ("reference", "rollout"), FRESH, step=1)
    return [row for row in rows if "cached_response" not in row]


def test_an_added_row_runs_its_prompts_own_agent_loop_with_what_its_tools_are_told():
    extra = {"agent_name": "tool_agent", "tools_kwargs": {"search": {"create_kwargs": {"index": 3}}}, "index": 3}
    group = CachedGroup([], "sums", "0", np.array([1]), [np.array([1])], np.array([1]), extra_info=extra)
    rows, _ = ask([group], {}, ("reference", "rollout"), 2, step=1)
    assert [row["agent_name"] for row in rows] == ["cached_response", "tool_agent", "tool_agent"]
    assert all(row["tools_kwargs"] == extra["tools_kwargs"] for row in rows)
    assert all("agent_name" not in row for row in of_the_buffer())  # the run's own, where a prompt names none


def of_the_rl_batch():
    """A prompt of VeRL's own, which is asked once for each session."""
    return {"raw_prompt": [{"role": "user", "content": "0"}], "data_source": "chat", "index": 0}


def test_no_two_responses_of_a_step_are_drawn_with_one_seed(drawn_with):
    """Else the responses to a prompt are copies of one, which no average and no count of rows shows."""
    fresh = [drawn_with(row) for row in of_the_buffer()]
    rl = [drawn_with(of_the_rl_batch(), session=session) for session in range(FRESH)]
    assert len(fresh) == PROMPTS * FRESH
    assert len({*fresh, *rl}) == len(fresh) + len(rl)


@pytest.mark.parametrize("change", [{"seed": 1}, {"step": 2}])
def test_another_step_and_another_seed_of_the_run_draw_everything_anew(drawn_with, change):
    changes: tuple[dict[str, int], ...] = ({}, {}, change)
    first, again, other = ([drawn_with(row, **given) for row in of_the_buffer()] for given in changes)
    assert first == again
    assert not {*first} & {*other}


def test_every_part_of_a_request_changes_its_seed():
    """3 x 4 x 2 x 8 x 2 x 8 requests, all different: chance makes two of 3072 equal in 0.2% of the draws."""
    prompts = [[{"role": "user", "content": text}] for text in ("1 + 1", "1 + 2")]
    requests = itertools.product(range(3), range(4), ("math_train", "chat_train"), range(8), prompts, range(8))
    seeds = [request_seed(*request) for request in requests]
    assert len(set(seeds)) == len(seeds) == 3072
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_seed_is_the_same_in_every_process():
    """Python's own hash of a string is not; this one is written down."""
    assert request_seed(0, 1, "math_train", 3, [{"role": "user", "content": "x"}], 0) == 361048277


def test_a_tools_tokens_are_masked_in_a_cached_response():
    given = {"prompt_ids": [7], "response_ids": [3, 4], "mask": [0, 1], "reward": 1.0}
    answer = asyncio.run(
        CachedResponseLoop.run(None, {"logprobs": True}, cached_response=given, global_steps=1)  # type: ignore[arg-type]
    )
    assert (answer.response_ids, answer.response_mask) == ([3, 4], [0, 1])


def test_a_cached_verdict_is_kept_whatever_the_reward_manager():
    """VeRL asks the manager for responses without a reward alone."""
    given = {"prompt_ids": [7], "response_ids": [3, 4], "mask": [1, 1], "reward": 0.0}
    answer = asyncio.run(
        CachedResponseLoop.run(None, {"logprobs": False}, cached_response=given, global_steps=1)  # type: ignore[arg-type]
    )
    worker: Any = SimpleNamespace(reward_loop_worker_handles=["asked, it would fail"])
    asyncio.run(AgentLoopWorker._compute_score(worker, [answer], {}))
    assert answer.reward_score == 0.0
    assert answer.extra_fields["reward_extra_info"] == {"acc": 0.0, "score": 0.0}  # which filter_groups asks of all
