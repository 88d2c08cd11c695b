"""Of the command that started a process: whether it has `cokl.*`, and whether VeRL is as the trainers extend it.

No part of VeRL is imported here: another version may lack the parts that the trainers extend, and is to be refused in a
line before importing them fails with a traceback.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

VERL = "0.9.1"
"""The version whose trainer this package extends."""
MAIN = "verl/trainer/main_ppo.py"
PREFLIGHT = "+hydra.callbacks.cokl._target_=llm_bridge.trainer.preflight.Preflight"
"""The option of Hydra that has the configuration looked at before VeRL's program gets it."""
MODULES = "VERL_USE_EXTERNAL_MODULES"
"""The variable by which VeRL's processes load the plug-in."""
_PROGRAMS = {
    "one_step_off_policy": "a step's rollouts no longer overlap the update before it, and async options are lost",
    "fully_async": "rollouts no longer overlap updates, and async_training.* is lost",
    "partial_rollout": "responses are no longer continued in a later step",
    "main_ppo_v0": "trainer.use_v1=True is needed",
    "dapo": "reward.reward_manager.name=dapo, its penalty on length and algorithm.filter_groups are kept",
    "verl_tool": "tools are run by VeRL's own agent loops, and actor_rollout_ref.agent.* is lost",
    "prime": "its implicit reward model is lost",
    "spo": "its own baseline is lost",
    "sppo": "its own loss is lost",
    "gvpo": "its own loss is lost",
}
"""By a part of another program's path, what VeRL's main has or lacks of it."""
_OPTION = re.compile(r"\+{0,2}cokl(\.[\w.]+)?=")


def refuse(reason: str) -> NoReturn:
    """On standard error, exit code 2."""
    print(f"cokl: {reason}", file=sys.stderr, flush=True)
    sys.exit(2)


def has_options(arguments: Sequence[str]) -> bool:
    """Whether a process has `cokl.*` options and is no program of this package's, which starts VeRL in others."""
    programs = {Path(argument).name for argument in arguments[:3]}
    return any(map(_OPTION.match, arguments)) and not programs & {"cokl", "cokl_cli"}


def is_main(arguments: Sequence[str]) -> bool:
    """Whether a process runs VeRL's main program, whose configuration may have a node `cokl` of a file."""
    module = MAIN.removesuffix(".py").replace("/", ".")
    return any(argument == module or argument.endswith(MAIN) for argument in arguments)


def check_version(installed: str) -> None:
    """Refuse another version of VeRL."""
    if installed.split("+", maxsplit=1)[0] != VERL:
        refuse(f"verl is {installed}, expected {VERL}, whose trainer this one extends")


def handed_on(environment: Mapping[str, str]) -> list[str]:
    """The option by which a Ray cluster that runs already loads the modules of this process into VeRL's.

    Empty where the job that this process belongs to hands the variable on: Ray refuses to be told twice.
    """
    if MODULES in environment.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "") or not environment.get(MODULES):
        return []
    return [f"++ray_kwargs.ray_init.runtime_env.env_vars.{MODULES}='{environment[MODULES]}'"]


def check_program(file: str) -> None:
    """Refuse another program than VeRL's main. file: its path."""
    path = Path(file).as_posix()
    if path.endswith(MAIN):
        return
    lost = next((lost for part, lost in _PROGRAMS.items() if part in path), "options of its own are lost")
    what = f"{Path(file).name} does not select its trainer by name, so cokl.* would have no effect"
    refuse(f"{what}; start {MAIN}, of VeRL's own, with which {lost}")
