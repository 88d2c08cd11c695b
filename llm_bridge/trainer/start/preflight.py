"""What every start of VeRL with `cokl.*` passes before anything is spent: version, program, trainer, settings, buffer.

VeRL accepts `cokl.*` wherever it reads a configuration, and only `verl.trainer.main_ppo` with `trainer.use_v1` looks
the trainer up by its name. Every other way would train without the regularizer and say nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ray
import verl
import verl.utils.device
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

from cokl.support.errors import InputError
from llm_bridge.rewards.judge import load_function
from llm_bridge.trainer.buffers import regularization
from llm_bridge.trainer.start.command import check_start, refuse
from llm_bridge.trainer.start.hooks import missing
from llm_bridge.trainer.start.versions import PINNED


def check_configuration(config: DictConfig) -> None:
    """Refuse a node `cokl` beside a trainer that does not use it, and settings or buffers that do not fit."""
    from llm_bridge.trainer.base import RewardedTrainer
    from llm_bridge.trainer.joint import CoKLTrainer

    mode = OmegaConf.select(config, "trainer.v1.trainer_mode")
    trainer = TRAINER_REGISTRY.get(mode, object)
    regularizes = issubclass(trainer, CoKLTrainer)
    if config.get("cokl") is None and not regularizes:
        return
    if not OmegaConf.select(config, "trainer.use_v1"):
        refuse("trainer.use_v1: expected True; with VeRL's older trainers cokl.* has no effect")
    own = trainer.__module__.startswith("llm_bridge.")  # of a job without a regularizer, such as the buffer's
    if not regularizes and (not own or OmegaConf.select(config, "cokl.method") is not None):
        with_cokl = sorted(name for name, known in TRAINER_REGISTRY.items() if issubclass(known, CoKLTrainer))
        expected = " or ".join(with_cokl)
        refuse(f"trainer.v1.trainer_mode: expected {expected}, got {mode}, with which cokl.* has no effect")
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
    if regularizes:
        try:
            settings, _, _ = regularization(config)
            if settings.judge:
                load_function(settings.judge)
        except InputError as error:
            refuse(str(error))


def in_one_line(run: Callable[..., Any]) -> Callable[..., Any]:
    """VeRL's function that waits for the trainer, which refuses what the trainer has refused."""

    def running(*arguments: Any, **options: Any) -> Any:
        try:
            return run(*arguments, **options)
        except InputError as error:
            ray.shutdown()  # which prints what its workers have said
            refuse(str(getattr(error, "cause", error)))  # Ray's own text is the trainer's traceback

    return running


def install() -> None:
    """Check this process's configuration as soon as VeRL's program has read it.

    Refuses a VeRL without a part that the trainers override or call. What the trainer refuses later, in a process of
    its own, ends this one in the same way.
    """
    if gone := list(missing()):
        refuse(f"verl {verl.__version__} lacks {gone[0]}; expected {PINNED['verl']}")
    set_device: Callable[[DictConfig], Any] = verl.utils.device.auto_set_device

    def checked(config: DictConfig) -> Any:
        program = sys._getframe(1)
        if config.get("cokl") is not None:
            check_start(program.f_code.co_filename, verl.__version__)
            program.f_globals["run_ppo"] = in_one_line(program.f_globals["run_ppo"])
        check_configuration(config)
        return set_device(config)

    # Every program of VeRL's calls this first, from its own file, with its whole configuration.
    verl.utils.device.auto_set_device = checked
