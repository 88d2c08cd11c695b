"""The agent loop that returns a cached response."""

from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register

from llm_bridge.trainer.rows import CACHED_LOOP


@register(CACHED_LOOP)
class CachedResponseLoop(AgentLoopBase):
    """Selected by a row's `agent_name`; its column `cached_response` holds the response and the verifier's verdict."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """The cached response, with all fields that VeRL's single-turn loop sets."""
        cached = kwargs["cached_response"]
        return AgentLoopOutput(
            prompt_ids=cached["prompt_ids"],
            response_ids=cached["response_ids"],
            response_mask=cached["mask"],
            response_logprobs=[0.0] * len(cached["mask"]) if sampling_params["logprobs"] else None,  # and not used
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
                "reward_extra_info": {"acc": cached["reward"], "score": cached["reward"]},  # for filter_groups
                "min_global_steps": kwargs["global_steps"],
                "max_global_steps": kwargs["global_steps"],
            },
        )
