"""This package's agent loops for VeRL: one whose samples repeat, one that returns a cached response, one that judges.

vLLM draws all requests of an engine from one generator, in the order in which they happen to arrive, so that the
engine's seed alone repeats nothing. (VeRL's `full_determinism` gives all requests one seed: a group of G copies.)
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import hydra
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
    _agent_loop_registry,
    register,
)
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from llm_bridge.rewards.judge import Judge, load_function


@register("seeded")
class SeededLoop(SingleTurnAgentLoop):
    """VeRL's single-turn loop with a seed for each request, so that what is drawn does not depend on the others."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """One response to `raw_prompt`, drawn with a seed of its experiment, step, prompt and number in the group."""
        seed = request_seed(
            self.rollout_config.seed,
            int(kwargs["global_steps"]),
            str(kwargs["data_source"]),
            int(kwargs["index"]),
            [dict(message) for message in kwargs["raw_prompt"]],
            int(kwargs["session_id"]),
        )
        return await super().run({**sampling_params, "seed": seed}, **kwargs)


def request_seed(*identity: Any) -> int:
    """A seed in [0, 2^31) that differs between requests that differ in any part of their identity, JSON values."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


@register("cached_response")
class CachedResponseLoop(AgentLoopBase):
    """Selected by a row's `agent_name`; its column `cached_response` holds the response and the verifier's verdict."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """The cached response, with all fields that VeRL's single-turn loop sets."""
        cached = kwargs["cached_response"]
        log_probs = [0.0 if math.isnan(value) else value for value in cached["log_probs"]]  # unknown, and not used
        return AgentLoopOutput(
            prompt_ids=cached["prompt_ids"],
            response_ids=cached["response_ids"],
            response_mask=cached["mask"],
            response_logprobs=log_probs if sampling_params["logprobs"] else None,
            reward_score=cached["reward"],
            routed_experts=None,
            multi_modal_data={},
            mm_processor_kwargs={},
            mm_processor_output=None,
            num_turns=2,
            metrics=AgentLoopMetrics(),
            extra_fields={
                "turn_scores": [],
                "tool_rewards": [],
                "reward_extra_info": {},
                "min_global_steps": kwargs["global_steps"],
                "max_global_steps": kwargs["global_steps"],
            },
        )


@register("judged")
class JudgedLoop(AgentLoopBase):
    """Another loop, whose answers the buffer's own judge scores; VeRL's reward function is then not asked.

    Selected by a row's `agent_name`; its column `judge` has the other loop's name, and the judge's function, key and
    options.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.given = given

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        """What the other loop answers, its last output with the judge's score."""
        asked = kwargs["judge"]
        judge = Judge(load_function(asked["function"]), asked["key"], asked["options"])
        answers = await hydra.utils.instantiate(_agent_loop_registry[asked["loop"]], **self.given).run(
            sampling_params, **kwargs
        )
        last = answers[-1] if isinstance(answers, list) else answers
        text = self.tokenizer.decode(last.response_ids, skip_special_tokens=True)
        truth = kwargs["reward_model"]["ground_truth"]
        last.reward_score = await judge.score(text, kwargs["data_source"], truth, kwargs["extra_info"])
        last.extra_fields["reward_extra_info"] = {}
        return answers
