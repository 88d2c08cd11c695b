"""Seeds of single requests: what they depend on, and that every job asks for them."""

import asyncio
import itertools

import pytest

pytest.importorskip("verl")

from llm_bridge.experiment.trainer import request_seed
from llm_bridge.trainer.agent_loop import CachedResponseLoop


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
