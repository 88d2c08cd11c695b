"""VeRL's agent loops in the trainer's own process, for models whose answers cost less than asking for them.

VeRL's workers send each response by itself to a load balancer, to the rollout engine, to a reward worker and to the
queue; for a tiny model that is most of a step. Here a batch's requests go to the one engine together, the reward
function is called directly, and the rows go to the queue in one piece. They are those that VeRL's workers would put
there, without the columns that no later step of training reads.
"""

from __future__ import annotations

import asyncio
from typing import Any

import hydra
import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopOutput,
    AgentLoopWorker,
    DictConfigWrap,
    ToolListWrap,
    _agent_loop_registry,
)
from verl.utils import tensordict_utils as tu
from verl.workers.rollout.llm_server import LLMServerClient

from llm_bridge.rewards.judge import Judge, load_function

_Row = tuple[str, dict[str, Any], dict[str, Any]]
"""A row's key, fields and tag in VeRL's queue."""


class OneServer(LLMServerClient):
    """VeRL's client of the rollout engine, which asks the load balancer for it at first only: there is one engine."""

    server: tuple[str, Any] | None = None

    async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:
        if self.server is None:
            self.server = await super()._acquire_server(request_id, **extra)
        return self.server

    def _release_server(self, server_id: str, request_id: str | None = None) -> None:
        pass


class RolloutsInProcess(AgentLoopWorker):
    """An agent-loop manager, `rollout.agent.agent_loop_manager_class`, for training batches and one output a session.

    Agent loops are made once and shared by all rows, so they must keep nothing from row to row.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.llm_client: LLMServerClient = OneServer(self.config, given["llm_client"]._load_balancer)
        self.events = asyncio.new_event_loop()
        self.loops: dict[str, AgentLoopBase] = {}
        custom = self.config.reward.custom_reward_function
        reward = load_function(f"{custom.path}:{custom.name}")
        self.judge = Judge(reward, options=dict(custom.get("reward_kwargs") or {}))

    @classmethod
    def create(cls, **given: Any) -> RolloutsInProcess:
        """What VeRL calls."""
        return cls(**given)

    def generate_sequences(self, batch: TensorDict) -> None:
        """Put the rows of a batch of prompts into VeRL's queue, and mark the prompts as finished."""
        prompts = [{name: tu.unwrap_non_tensor_data(value) for name, value in row.items()} for row in batch]
        keys, fields, tags = zip(*self.events.run_until_complete(self._answers(prompts)), strict=True)
        rows = tu.list_of_dict_to_tensordict(list(fields))
        tq.kv_batch_put(keys=list(keys), partition_id="train", fields=rows, tags=list(tags))
        uids = [prompt["uid"] for prompt in prompts]
        tq.kv_batch_put(keys=uids, partition_id="train", tags=[{"status": "finished"} for _ in uids])

    async def _answers(self, prompts: list[dict[str, Any]]) -> list[_Row]:
        rollout = self.config.actor_rollout_ref.rollout
        sampling = {
            "temperature": rollout.temperature,
            "top_p": rollout.top_p,
            "top_k": rollout.top_k,
            "repetition_penalty": 1.0,
            "logprobs": rollout.calculate_log_probs,
        }
        asked = []
        for prompt in prompts:
            loop = self._loop(prompt.get("agent_name", rollout.agent.default_agent_loop))
            sessions = range(prompt.get("__rollout_n__", rollout.n))
            asked += [self._row(loop, sampling, {**prompt, "session_id": session}) for session in sessions]
        return await asyncio.gather(*asked)

    def _loop(self, name: str) -> AgentLoopBase:
        if name not in self.loops:
            self.loops[name] = hydra.utils.instantiate(
                config=_agent_loop_registry[name],
                trainer_config=DictConfigWrap(self.config),
                server_manager=self.llm_client,
                tokenizer=self.tokenizer,
                processor=self.processor,
                hf_model_type=self.hf_model_type,
                dataset_cls=self.dataset_cls,
                data_config=DictConfigWrap(self.config.data),
                tools=ToolListWrap(self.tools),
            )
        return self.loops[name]

    async def _row(self, loop: AgentLoopBase, sampling: dict[str, Any], asked: dict[str, Any]) -> _Row:
        output: AgentLoopOutput = await loop.run(sampling, **asked)
        if output.reward_score is None:
            text = self.tokenizer.decode(output.response_ids, skip_special_tokens=True)
            truth = asked["reward_model"]["ground_truth"]
            output.reward_score = await self.judge.score(text, asked["data_source"], truth, asked["extra_info"])
        fields = {name: value for name, value in output.as_dict().items() if isinstance(value, Tensor)}
        tokens = torch.cat([fields["prompts"], fields["responses"]])
        fields |= {
            "input_ids": tokens,
            "position_ids": torch.arange(len(tokens)),
            "loss_mask": fields["response_mask"],
            "num_turns": output.num_turns,
            "uid": asked["uid"],
        }
        tag = {
            "status": "success",
            "prompt_len": len(fields["prompts"]),
            "response_len": len(fields["responses"]),
            "seq_len": len(tokens),
            "global_steps": asked["global_steps"],
            "min_global_steps": output.extra_fields.get("min_global_steps"),
            "max_global_steps": output.extra_fields.get("max_global_steps"),
        }
        return f"{asked['uid']}_{asked['session_id']}_0", fields, tag
