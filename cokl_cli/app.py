"""The `cokl` command line: the only module that knows all packages.

Commands are frozen dataclasses in each package's `commands` module, with their heavy imports inside `run`, so that
help appears at once.
"""

import contextlib
import io
import itertools
import os
import re
import signal
import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import tyro

from bandit.finite_group.config import PRESETS as FINITE_GROUP_PRESETS
from bandit.sequences.config import SEQUENCE_PRESETS
from bandit.shift.config import SHIFT_PRESETS
from bandit.sweep.config import PRESETS
from cokl.support.errors import InputError
from cokl_cli import llm
from cokl_cli.bandit import Report, Sequences, Sweep
from cokl_cli.figures import (
    DrawnFiniteGroup,
    DrawnPhase,
    DrawnShift,
    Figures,
    LLMReport,
    LLMRun,
    LLMTables,
    Reproduce,
    TheoryFigures,
)
from cokl_cli.llm_report import CheckPaper, Normalize, ValidateReward
from cokl_cli.theory import Check, Optimum


class Command(Protocol):
    """What a subcommand is: its fields are its options."""

    def run(self) -> int:
        """Do it and return the exit code. Raises InputError for what the user can mend."""


def main(argv: list[str] | None = None) -> None:
    """Run one command; ends with exit code 0, 1 (a check failed), 2 (bad input), 130 (stopped) or 141 (no reader)."""
    try:
        sys.exit(_parse(sys.argv[1:] if argv is None else argv).run())
    except InputError as error:
        print(f"cokl: error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\ncokl: interrupted; finished work is saved, the same command goes on from there", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)


def _parse(arguments: list[str]) -> Command:
    """The command that the arguments name. Raises InputError; exits for --help."""
    arguments = _overrides_first(arguments)
    preset = _asked(arguments, "--preset", PRESETS, "paper")
    defaults = {"preset": preset, "config": PRESETS[preset]}
    experiment: Any = llm.DEFAULTS[_asked(arguments, "--config", llm.DEFAULTS, "tiny")]

    def named(name: str, command: Any, **options: Any) -> Any:
        return Annotated[command, tyro.conf.subcommand(name, prefix_name=False, **options)]

    finite_group = DrawnFiniteGroup(preset=preset, config=FINITE_GROUP_PRESETS[preset])
    labs = (
        named("sweep", Sweep, default=Sweep(**defaults))
        | named("report", Report)
        | named("shift", DrawnShift, default=DrawnShift(preset=preset, config=SHIFT_PRESETS[preset]))
        | named("phase", DrawnPhase)
        | named("sequences", Sequences, default=Sequences(preset=preset, config=SEQUENCE_PRESETS[preset]))
        | named("finite-group", DrawnFiniteGroup, default=finite_group)
    )

    @dataclass(frozen=True)
    class Bandit:
        """The controlled multi-solution experiment, the labs around it, and their phase diagrams."""

        command: Annotated[labs, tyro.conf.arg(name="")]  # type: ignore[valid-type]

    @dataclass(frozen=True)
    class Theory:
        """Every claim of the paper checked, and the population optimum of any regularizer."""

        command: Annotated[
            named("check", Check) | named("optimum", Optimum) | named("figures", TheoryFigures),  # type: ignore[valid-type]
            tyro.conf.arg(name=""),
        ]

    stages = (
        named("run", LLMRun, default=LLMRun(**experiment))
        | named("prepare", llm.Prepare, default=llm.Prepare(**experiment))
        | named("train", llm.Train, default=llm.Train(**experiment))
        | named("buffer", llm.BuildBuffer, default=llm.BuildBuffer(**experiment))
        | named("evaluate", llm.Evaluate, default=llm.Evaluate(**experiment))
        | named("report", LLMReport, default=LLMReport(**experiment))
        | named("tables", LLMTables)
        | named("normalize", Normalize)
        | named("validate-reward", ValidateReward)
        | named("check-paper", CheckPaper)
    )

    @dataclass(frozen=True)
    class LLM:
        """The paper's LLM experiment on VeRL: on a CPU with a tiny model, on GPUs with Qwen3."""

        command: Annotated[stages, tyro.conf.arg(name="")]  # type: ignore[valid-type]

    commands = (
        named("bandit", Bandit)
        | named("theory", Theory)
        | named("llm", LLM)
        | named("figures", Figures)
        | named("reproduce", Reproduce, default=Reproduce(**defaults))
    )
    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages):
            parsed = tyro.cli(commands, prog="cokl", description=_DESCRIPTION, args=arguments, config=_STYLE)
    except SystemExit as ended:
        if ended.code:
            raise InputError(_one_line(messages.getvalue())) from None
        raise
    while hasattr(parsed, "command"):
        parsed = parsed.command
    return parsed


_STYLE = (tyro.conf.OmitArgPrefixes,)
_DESCRIPTION = "Correctness-conditioned KL regularization: experiments, figures and checks."


def _asked(arguments: list[str], option: str, known: Collection[str], default: str) -> Any:
    """What `option` names among the arguments: it decides the defaults of all other options, so it is needed first."""
    for argument, following in itertools.pairwise([*arguments, ""]):
        name, equals, value = argument.partition("=")
        if name == option:
            asked = value if equals else following
            return asked if asked in known else default
    return default


def _overrides_first(arguments: list[str]) -> list[str]:
    """The arguments of `cokl llm` with VeRL's overrides before all options, whose lists would swallow them."""
    if arguments[:1] != ["llm"]:
        return arguments
    overrides = [argument for argument in arguments if re.match(r"~[\w@/.]+$|[+~]{0,2}[\w@/]+(\.[\w@/]+)+=", argument)]
    others = [argument for argument in arguments if argument not in overrides]
    return [*others[:2], *overrides, *others[2:]]


def _one_line(box: str) -> str:
    """The message of the parser's error box, without its frame and its excerpt of the help."""
    lines = [line.strip("│ ") for line in box.splitlines() if line.startswith("│")]
    if not lines:  # a terminal without such characters: a title, a rule, the message, and perhaps another rule
        lines = [line.strip("| ") for line in box.splitlines() if line.strip("|+- ")][1:]
    rules = [position for position, line in enumerate(lines) if line.startswith("─")]
    message = " ".join(" ".join(lines[: rules[0]] if rules else lines).split())
    message = re.sub(r"^Error parsing __tyro\S*: ", "", message)
    return message.split(" Arguments are applied")[0]
