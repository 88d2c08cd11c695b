"""Seeds of single requests: what they depend on, and that every job asks for them."""

import asyncio
import dataclasses
import itertools
import json
import subprocess
import sys

import pytest

pytest.importorskip("verl")

from llm_bridge.experiment.config import PRESETS
from llm_bridge.experiment.jobs import chat_job, compose, environment, math_job
from llm_bridge.experiment.trainer import request_seed
from llm_bridge.tiny.make import make_tiny
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


def test_a_paper_preset_leaves_the_draws_to_the_engine(tmp_path):
    """Which draws requests with seeds one by one; whoever wants a run repeated asks for it."""
    config = PRESETS["qwen3-0.6b"]
    for repeatable, loop in ((config.repeatable, "single_turn_agent"), (True, "seeded")):
        composed = compose(chat_job(dataclasses.replace(config, repeatable=repeatable), tmp_path, tmp_path, "cokl"))
        assert composed.actor_rollout_ref.rollout.agent.default_agent_loop == loop


DRAW = """
import json, random, sys
import verl
from vllm import LLM, SamplingParams
model, options = sys.argv[1], json.loads(sys.argv[2])
engine = LLM(model=model, enforce_eager=True, distributed_executor_backend="uni", **options)
draw = random.Random(0)
prompts = [{"prompt_token_ids": [draw.randrange(6, 60) for _ in range(draw.randrange(20, 35))]} for _ in range(150)]
seeded = [SamplingParams(temperature=1.0, max_tokens=8, seed=place) for place in range(len(prompts))]
together = engine.generate(prompts, seeded, use_tqdm=False)
alone = [engine.generate(*request, use_tqdm=False)[0] for request in list(zip(prompts, seeded))[::5]]
print(json.dumps([[answer.outputs[0].token_ids for answer in answers] for answers in (together, alone)]))
"""


def test_more_requests_than_fit_into_a_step_draw_what_each_draws_alone(tmp_path):
    """150 prompts of 20 to 34 tokens, together about twice the tokens of an engine's step, and every fifth alone."""
    make_tiny(tmp_path, pretraining_steps=1)
    job = math_job(PRESETS["tiny"], tmp_path, tmp_path / "model")
    rollout = compose(job).actor_rollout_ref.rollout
    names = ["dtype", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "enable_prefix_caching"]
    options = {name: rollout[name] for name in [*names, "enable_chunked_prefill"]}
    assert rollout.engine_kwargs.vllm.distributed_executor_backend == "uni"
    command = [sys.executable, "-c", DRAW, str(tmp_path / "model"), json.dumps(options)]
    variables = environment(PRESETS["tiny"], job, tmp_path / "metrics.jsonl")
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    together, alone = json.loads(done.stdout.splitlines()[-1])
    assert (len(together), len(alone)) == (150, 30)
    assert together[::5] == alone


def test_a_tools_tokens_are_masked_in_a_cached_response():
    given = {"prompt_ids": [7], "response_ids": [3, 4], "log_probs": [-0.5, -1.0], "mask": [0, 1], "reward": 1.0}
    answer = asyncio.run(
        CachedResponseLoop.run(None, {"logprobs": True}, cached_response=given, global_steps=1)  # type: ignore[arg-type]
    )
    assert (answer.response_ids, answer.response_mask) == ([3, 4], [0, 1])
