"""What every start of VeRL with `cokl.*` passes before anything is spent: the version, the program, the trainer.

VeRL accepts `cokl.*` wherever it reads a configuration, and only `verl.trainer.main_ppo` with `trainer.use_v1` looks
the trainer up by its name. Every other way would train without the regularizer and say nothing.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import verl.utils.device
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

from cokl.responses.buffer import Buffer
from cokl.support.options import require
from llm_bridge.trainer.base import RewardedTrainer
from llm_bridge.trainer.hooks import missing
from llm_bridge.trainer.options import RegularizationSettings
from llm_bridge.trainer.versions import PINNED

MAIN = "verl.trainer.main_ppo"
_OPTION = re.compile(r"\+{0,2}cokl\.")


def refuse(reason: str) -> NoReturn:
    """One line on standard error, exit code 2."""
    print(f"cokl: {reason}", file=sys.stderr)
    sys.exit(2)


def check_command(arguments: Sequence[str], installed: str) -> None:
    """Refuse another version of VeRL, and another program than VeRL's main, in a process that has `cokl.*` options.

    arguments: the process's, from the interpreter on. installed: VeRL's version.
    """
    if not any(_OPTION.match(argument) for argument in arguments):
        return
    if installed != PINNED["verl"]:
        refuse(f"verl is {installed}, expected {PINNED['verl']}, whose trainer this one extends")
    program = arguments[arguments.index("-m") + 1] if "-m" in arguments[:-1] else ""
    if not program:
        program = next((argument for argument in arguments[1:] if argument.endswith(".py")), "")
    if program and program != MAIN and not program.endswith(MAIN.replace(".", "/") + ".py"):
        refuse(
            f"{Path(program).name} does not select its trainer by name, so cokl.* would have no effect; start {MAIN}"
        )


def check_configuration(config: DictConfig) -> None:
    """Refuse a configuration that has a node `cokl` but makes VeRL build a trainer of another package."""
    if config.get("cokl") is None:
        return
    if not OmegaConf.select(config, "trainer.use_v1"):
        refuse("trainer.use_v1: expected True; with VeRL's older trainers cokl.* has no effect")
    mode = OmegaConf.select(config, "trainer.v1.trainer_mode")
    trainer = TRAINER_REGISTRY.get(mode)
    if trainer is None or not trainer.__module__.startswith("llm_bridge."):
        ours = sorted(name for name, known in TRAINER_REGISTRY.items() if known.__module__.startswith("llm_bridge."))
        refuse(
            f"trainer.v1.trainer_mode: expected one of {', '.join(ours)}, got {mode}, with which cokl.* has no effect"
        )
    if config.reward.reward_model.enable and config.reward.custom_reward_function.path is None:
        refuse(
            "reward.custom_reward_function.path: expected a file beside a reward model; without one the model's raw "
            "logit would decide which responses are correct"
        )
    colocated = config.reward.reward_model.enable and not config.reward.reward_model.enable_resource_pool
    if colocated and not issubclass(trainer, RewardedTrainer):
        refuse(
            f"trainer.v1.trainer_mode: expected cokl_rewarded, got {mode}, beside a reward model on the same GPUs: "
            "VeRL would pass only the prompt to the reward function, without ground truth and data source"
        )


def check_buffer(config: DictConfig, settings: RegularizationSettings, buffer: Buffer, drawn: bool) -> None:
    """Check that a run fits the buffer that it regularizes with. drawn: whether its prompts are drawn from the buffer.

    Raises InputError in three cases: fresh responses or prompts would be cut off shorter than the cached ones, which
    makes all of them wrong; a row exceeds a GPU's token budget; cached log-probabilities are missing, or at another
    temperature than the run's.
    """
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    members = [(group, *row) for group in buffer.groups for row in zip(group.response_ids, group.rewards, strict=True)]
    lengths: list[tuple[str, int, int, str]] = []
    if "rollout" in settings.method.streams():
        correct = max((len(ids) for _, ids, reward in members if reward), default=0)
        why = "tokens of the longest correct cached response: fresh ones that are cut off count as wrong"
        lengths.append(("data.max_response_length", correct, rollout.response_length, why))
        prompt = max(len(group.prompt_ids) for group in buffer.groups) if drawn else 0
        why = "tokens of the buffer's longest prompt: VeRL cuts off the beginning of a longer one"
        lengths.append(("data.max_prompt_length", prompt, rollout.prompt_length, why))
    row = max(len(group.prompt_ids) + len(ids) for group, ids, _ in members)
    row *= "reference" in settings.method.streams()
    why = "tokens of the buffer's longest row, which no micro-batch could hold"
    if actor.use_dynamic_bsz:
        budget = actor.ppo_max_token_len_per_gpu
        lengths.append(("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", row, budget, why))
    if rollout.log_prob_use_dynamic_bsz:
        budget = rollout.log_prob_max_token_len_per_gpu
        lengths.append(("actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu", row, budget, why))
    for name, least, given, why in lengths:
        require(least <= given, name, f"at least {least}, {why}", given)
    if not buffer.has_log_probs:
        without = settings.schedule == "target" or settings.method.compares_with_reference
        expected = "a buffer with log-probabilities, for a method or a schedule that compares with the reference"
        require(not without, "cokl.buffer", expected, "one without")
    elif len(settings.method.streams()) == 2:
        expected = f"{buffer.temperature:g}, the temperature of the buffer's log-probabilities"
        same = math.isclose(buffer.temperature, rollout.temperature)
        require(same, "actor_rollout_ref.rollout.temperature", expected, rollout.temperature)


def install() -> None:
    """Check this process's command now, and its configuration as soon as VeRL's program has read it.

    Refuses a VeRL without a part that the trainers override or call.
    """
    check_command(sys.orig_argv, version("verl"))
    if gone := list(missing()):
        refuse(f"verl {version('verl')} lacks {gone[0]}; expected {PINNED['verl']}")
    set_device: Callable[[DictConfig], Any] = verl.utils.device.auto_set_device

    def checked(config: DictConfig) -> Any:
        check_configuration(config)
        return set_device(config)

    # Every program of VeRL's calls this first, with its whole configuration.
    verl.utils.device.auto_set_device = checked
