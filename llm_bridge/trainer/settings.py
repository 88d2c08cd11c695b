"""The options `+cokl.*` of VeRL's configuration, and the multiples of rows that VeRL's own ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, OmegaConf

from cokl import methods
from cokl.methods import Method
from cokl.support.errors import did_you_mean
from cokl.support.options import above, at_least, require, require_types


@dataclass(frozen=True)
class RegularizationSettings:
    """The node `cokl` of VeRL's configuration.

    method: what to add to the RL loss, a name that `cokl.methods.get` knows. beta: its coefficient. buffer: the
    buffer's file. kl_prompts: prompts drawn for a step. seed: of the order of the buffer's prompts. correct_above: a
    score above it counts as correct. length: Eq. 13's sum of a response's token log-probabilities, or their mean;
    ratios and costs are always of whole sequences. prompts: which are regularized, drawn from the buffer beside the RL
    batch, or the RL batch's own. These are looked up in the buffer; their fresh responses are the RL batch's.
    cached_per_prompt: how many cached responses each prompt adds to a step, drawn again for each step; 0 adds all of
    them. check: look at the command, and start nothing.
    """

    method: Method
    beta: Annotated[float, above(0)] = 1.0
    buffer: str = ""
    kl_prompts: Annotated[int, above(0)] = 8
    seed: Annotated[int, at_least(0)] = 0
    correct_above: float = 0.5
    length: Literal["token-sum", "token-mean"] = "token-sum"
    prompts: Literal["buffer", "training"] = "buffer"
    cached_per_prompt: Annotated[int, at_least(0)] = 0
    check: bool = False

    @classmethod
    def read(cls, config: DictConfig) -> RegularizationSettings:
        """From VeRL's configuration.

        Raises InputError for an unknown name, a value out of its range, and a method that adds nothing to the RL loss.
        """
        given = config.get("cokl") or OmegaConf.create()
        require(isinstance(given, DictConfig), "cokl", "options of its own, such as +cokl.method=replay", given)
        node: Any = OmegaConf.to_container(given, resolve=True)
        known = [known.name for known in fields(cls)]
        for name, value in node.items():
            got = f"an unknown name{did_you_mean(name, known)}"
            require(name in known, f"cokl.{name}", f"one of {', '.join(known)}", got)
            require(name == "check" or not isinstance(value, bool), f"cokl.{name}", "neither True nor False", value)
        require("method" in node, "cokl.method", "a name, such as +cokl.method=replay", "nothing")
        node["method"] = methods.get(str(node["method"]))
        settings = cls(**node)
        require_types(settings, "cokl.")
        name = settings.method.name
        require(len(settings.method.streams()) > 0, "cokl.method", "a regularizer (plain RL is VeRL's own)", name)
        require(bool(settings.buffer), "cokl.buffer", "a file (step 2 of docs/how-to/verl.md makes it)", "nothing")
        expected = "a number from 1e-38 to 1e38, which advantages in float32 can be"
        require(1e-38 <= settings.beta <= 1e38, "cokl.beta", expected, settings.beta)
        return settings


def row_multiple(config: DictConfig) -> int:
    """What the rows of each pass must be a multiple of: ranks that share out rows, and micro-batches."""
    actor, rollout, ref = (config.actor_rollout_ref[name] for name in ("actor", "rollout", "ref"))
    sizes = [part.log_prob_micro_batch_size_per_gpu for part in (rollout, ref)]
    per_rank = math.lcm(*(size or 1 for size in [actor.ppo_micro_batch_size_per_gpu, *sizes]))
    devices = config.trainer.n_gpus_per_node * config.trainer.nnodes
    if actor.strategy != "megatron":
        return devices * per_rank
    stages = actor.megatron.pipeline_model_parallel_size if actor.megatron.virtual_pipeline_model_parallel_size else 1
    return math.lcm(*(max(1, devices // _devices_of_one_model(part)) for part in (actor, ref))) * per_rank * stages


def _devices_of_one_model(part: DictConfig) -> int:
    """Megatron's, which all have the same rows. part: the actor's or the reference's settings."""
    kinds = ("tensor_model", "pipeline_model", "context")
    return math.prod(part.megatron[f"{kind}_parallel_size"] for kind in kinds)


def padded_prompts(config: DictConfig, rows: int) -> int:
    """The `ppo_mini_batch_size` to which VeRL pads so many rows: it counts prompts of `rollout.n` rows."""
    size = config.actor_rollout_ref.rollout.n
    multiple = math.lcm(size, row_multiple(config))
    return -(-rows // multiple) * multiple // size
