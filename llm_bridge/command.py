"""Of the command that started a process: whether it has `cokl.*`, and whether VeRL is as the trainers extend it.

No part of VeRL is imported here: another version may lack the parts that the trainers extend, and is to be refused in a
line before importing them fails with a traceback.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

VERL = "0.9.1"
"""The version whose trainer this package extends."""
MAIN = "verl/trainer/main_ppo.py"
PREFLIGHT = "+hydra.callbacks.cokl._target_=llm_bridge.trainer.preflight.Preflight"
"""The option of Hydra that has the configuration looked at before VeRL's program gets it."""
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


def check_program(file: str) -> None:
    """Refuse another program than VeRL's main. file: its path."""
    if not Path(file).as_posix().endswith(MAIN):
        refuse(f"{Path(file).name} does not select its trainer by name, so cokl.* would have no effect; start {MAIN}")
