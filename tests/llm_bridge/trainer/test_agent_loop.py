"""Seeds of single requests: what they depend on, and that every job asks for them."""

import itertools

import pytest

pytest.importorskip("verl")

from llm_bridge.experiment.config import PRESETS
from llm_bridge.experiment.jobs import buffer_job, chat_job, compose, evaluation_job, math_job
from llm_bridge.trainer.agent_loop import request_seed


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


def test_every_job_draws_with_seeds(tmp_path):
    config = PRESETS["tiny"]
    jobs = [
        math_job(config, tmp_path, tmp_path),
        buffer_job(config, tmp_path, tmp_path),
        chat_job(config, tmp_path, tmp_path, "grpo"),
        chat_job(config, tmp_path, tmp_path, "cokl"),
        evaluation_job(config, tmp_path, "base", tmp_path),
    ]
    for job in jobs:
        agent = compose(job).actor_rollout_ref.rollout.agent
        assert (agent.default_agent_loop, agent.agent_loop_config_path) == ("seeded", None), job.name


def test_clipping_reaches_verl(tmp_path):
    composed = compose(math_job(PRESETS["tiny"], tmp_path, tmp_path)).actor_rollout_ref.actor
    assert (composed.optim.clip_grad, composed.clip_ratio_c) == (1.0, 3.0)
