"""What every start of VeRL with `cokl.*` passes before anything is spent: the version, the program, the trainer.

VeRL accepts `cokl.*` wherever it reads a configuration, and only `verl.trainer.main_ppo` with `trainer.use_v1` looks
the trainer up by its name. Every other way would train without the regularizer and say nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import verl.utils.device
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

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
        refuse(f"{Path(program).name} does not look trainers up by name and would leave cokl.* unused; start {MAIN}")


def check_configuration(config: DictConfig) -> None:
    """Refuse a configuration with a node `cokl` under which VeRL builds another trainer than one of this package."""
    if config.get("cokl") is None:
        return
    if not OmegaConf.select(config, "trainer.use_v1"):
        refuse("trainer.use_v1: expected True, VeRL's older trainers leave cokl.* unused")
    mode = OmegaConf.select(config, "trainer.v1.trainer_mode")
    trainer = TRAINER_REGISTRY.get(mode)
    if trainer is None or not trainer.__module__.startswith("llm_bridge."):
        ours = sorted(name for name, known in TRAINER_REGISTRY.items() if known.__module__.startswith("llm_bridge."))
        refuse(f"trainer.v1.trainer_mode: expected one of {', '.join(ours)}, got {mode}, which leaves cokl.* unused")
    if config.reward.reward_model.enable and config.reward.custom_reward_function.path is None:
        refuse(
            "reward.custom_reward_function.path: expected a file beside a reward model, whose raw logit would else "
            "decide which responses are correct"
        )


def install() -> None:
    """Check this process's command now, and its configuration as soon as VeRL's program has read it."""
    check_command(sys.orig_argv, version("verl"))
    set_device: Callable[[DictConfig], Any] = verl.utils.device.auto_set_device

    def checked(config: DictConfig) -> Any:
        check_configuration(config)
        return set_device(config)

    # Every program of VeRL's calls this first, with its whole configuration.
    verl.utils.device.auto_set_device = checked
