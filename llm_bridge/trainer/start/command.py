"""What started a process, where its arguments have `cokl.*`: VeRL's main program of the pinned version, or a refusal.

No part of VeRL is needed, so that a version without the parts that the trainers extend is refused before they are
imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from llm_bridge.trainer.start.versions import PINNED

MAIN = "verl.trainer.main_ppo"
_OPTION = re.compile(r"\+{0,2}cokl(\.[\w.]+)?=")
_OF_VERL = re.compile(r"(^|[./])(verl|recipe|verl[-_]recipe)[./]")
"""A module or a path of VeRL or of its recipes."""
_OWN = ("cokl", "cokl_cli")
"""Programs that start VeRL in processes of their own."""


def refuse(reason: str) -> NoReturn:
    """One line on standard error, exit code 2."""
    print(f"cokl: {reason}", file=sys.stderr)
    sys.exit(2)


def check_command(arguments: Sequence[str], installed: str, loaded: bool = True) -> None:
    """Refuse another version of VeRL, another program of VeRL's than its main, and a start without the plug-in, in a
    process that has `cokl.*` options.

    arguments: the process's, from the interpreter on. installed: VeRL's version. loaded: whether the plug-in is.
    """
    program = _program(arguments)
    if not any(_OPTION.match(argument) for argument in arguments) or Path(program).name in _OWN:
        return
    check_start(program if _OF_VERL.search(program) else MAIN, installed)
    if not loaded:
        refuse("VERL_USE_EXTERNAL_MODULES: expected llm_bridge.plugin in it; without the plug-in cokl.* has no effect")


def check_start(program: str, installed: str) -> None:
    """Refuse another version of VeRL than the pinned one, and another program than VeRL's main.

    program: a module's name, or the path of a file.
    """
    if installed.split("+", maxsplit=1)[0] != PINNED["verl"]:
        refuse(f"verl is {installed}, expected {PINNED['verl']}, whose trainer this one extends")
    if program != MAIN and not program.endswith(MAIN.replace(".", "/") + ".py"):
        refuse(
            f"{Path(program).name} does not select its trainer by name, so cokl.* would have no effect; start {MAIN}"
        )


def _program(arguments: Sequence[str]) -> str:
    """The module or the path of the file that the interpreter was told to run; none with -c and at a prompt."""
    rest = iter(arguments[1:])
    for argument in rest:
        if argument in ("-W", "-X"):
            next(rest, "")
        elif argument.startswith("-m"):
            return argument[2:] or next(rest, "")
        elif argument == "-c":
            return ""
        elif not argument.startswith("-"):
            return str(Path(argument).resolve()) if argument.endswith(".py") else argument
    return ""
