"""The `cokl` command line: the only module that knows all packages.

Commands are frozen dataclasses in each package's `commands` module, with their heavy imports inside `run`, so that
help appears at once.
"""

import contextlib
import io
import itertools
import re
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import tyro

from bandit.commands import Report, Sweep
from bandit.config import PRESETS
from bandit.finite_group.config import PRESETS as FINITE_GROUP_PRESETS
from cokl.errors import InputError
from figures.commands import DrawnFiniteGroup, Figures, Reproduce, TheoryFigures
from theory.commands import Check, Optimum


class Command(Protocol):
    """What a subcommand is: its fields are its options."""

    def run(self) -> int:
        """Do it and return the exit code. Raises InputError for what the user can mend."""


def main(argv: list[str] | None = None) -> None:
    """Run one command; ends with exit code 0, 1 (a check failed), 2 (bad input) or 130 (interrupted)."""
    try:
        sys.exit(_parse(sys.argv[1:] if argv is None else argv).run())
    except InputError as error:
        print(f"cokl: error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\ncokl: interrupted; finished work is saved, the same command goes on from there", file=sys.stderr)
        sys.exit(130)


def _parse(arguments: list[str]) -> Command:
    """The command that the arguments name. Raises InputError; exits for --help."""
    preset = _asked_preset(arguments)
    defaults = {"preset": preset, "config": PRESETS[preset]}

    def named(name: str, command: Any, **options: Any) -> Any:
        return Annotated[command, tyro.conf.subcommand(name, prefix_name=False, **options)]

    finite_group_default = DrawnFiniteGroup(preset=preset, config=FINITE_GROUP_PRESETS[preset])
    finite_group = named("finite-group", DrawnFiniteGroup, default=finite_group_default)

    @dataclass(frozen=True)
    class Bandit:
        """The controlled multi-solution experiment."""

        command: Annotated[
            named("sweep", Sweep, default=Sweep(**defaults)) | named("report", Report) | finite_group,  # type: ignore[valid-type]
            tyro.conf.arg(name=""),
        ]

    @dataclass(frozen=True)
    class Theory:
        """Every claim of the paper checked, and the population optimum of any regularizer."""

        command: Annotated[
            named("check", Check) | named("optimum", Optimum) | named("figures", TheoryFigures),  # type: ignore[valid-type]
            tyro.conf.arg(name=""),
        ]

    commands = (
        named("bandit", Bandit)
        | named("theory", Theory)
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


def _asked_preset(arguments: list[str]) -> Any:
    """The preset named among the arguments: it decides the defaults of all other options, so it is needed first."""
    for argument, following in itertools.pairwise([*arguments, ""]):
        name, equals, value = argument.partition("=")
        if name == "--preset":
            asked = value if equals else following
            return asked if asked in PRESETS else "paper"
    return "paper"


def _one_line(box: str) -> str:
    """The message of the parser's error box, without its frame and its excerpt of the help."""
    lines = [line.strip("│ ") for line in box.splitlines() if line.startswith("│")]
    rules = [position for position, line in enumerate(lines) if line.startswith("─")]
    message = " ".join(lines[: rules[0]] if rules else lines)
    message = re.sub(r"^Error parsing __tyro\S*: ", "", message)
    return message.split("  Arguments are applied")[0]
