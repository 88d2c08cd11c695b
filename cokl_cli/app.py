"""The `cokl` command line, the only package that imports all others.

A command is a frozen dataclass whose fields are its options and whose `run` does the work; heavy imports are inside
`run`, so that help appears at once.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import pkgutil
import re
import shlex
import signal
import sys
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import takewhile
from typing import Any, NoReturn, Protocol

import tyro
from tyro import _errors as errors
from tyro.extras import SubcommandApp

from cokl.support.errors import InputError, did_you_mean
from cokl.support.extras import not_installed
from cokl_cli.surroundings import PATHS, Terminated, settle, silence


class Command(Protocol):
    """A subcommand; its fields are its options."""

    def run(self) -> int:
        """Do the work and return the exit code. Raises InputError for what the user can fix."""


def main(argv: list[str] | None = None) -> None:
    """Run one command.

    Exit codes: 0; 1, a check failed; 2, bad input, or what the system refuses; 130, Ctrl-C; 141, no reader; 129 or 143,
    SIGHUP or SIGTERM.
    """
    arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        settle()
        if arguments == ["--version"]:
            from importlib.metadata import version

            print(f"cokl {version('cokl')}")
            sys.exit(0)
        code = _parse(arguments).run()
        sys.stdout.flush()
        sys.exit(code)
    except (InputError, MemoryError, ModuleNotFoundError, RuntimeError) as error:
        _fail(_said(error))
    except KeyboardInterrupt as stopped:
        if argv is None:
            _heed_nothing()
        _say(f"\ncokl: interrupted; the same command resumes what is saved: cokl {shlex.join(arguments)}")
        code = 128 + (stopped.args[0] if isinstance(stopped, Terminated) else signal.SIGINT)
        if argv is None:
            _end_now(code)
        sys.exit(code)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        silence(sys.stdout)
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        silence(sys.stdout)
        where = f" ({error.filename})" if error.filename else ""
        _fail(f"{error.strerror or error}{where}")


def _heed_nothing() -> None:
    """Let a second Ctrl-C not disturb the end that the first has begun."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)


def _end_now(code: int) -> NoReturn:
    """Run the registered exit functions and end, without the seconds that libraries take for their clean-up."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def _said(error: Exception) -> str:
    """The line of an error that the user can mend. Raises that of a package which is there and lacks a module."""
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if not package or package in sys.stdlib_module_names or find_spec(package):
            raise error
        return not_installed(package)
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, RuntimeError) and "allocate" not in str(error):  # PyTorch's, for memory
        raise error
    return "not enough memory for this configuration; choose smaller settings or fewer --jobs"


def _fail(message: str) -> NoReturn:
    _say(f"cokl: error: {' '.join(message.splitlines())}")
    sys.exit(2)


def _say(line: str) -> None:
    """Write to standard error, if anyone is there and its disk has room."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def application(arguments: list[str]) -> SubcommandApp:
    """All commands, but of those that `arguments` do not name only name and help.

    So a command starts without the imports of the others, and `cokl --help` without any. The completion needs all.
    """
    commands = SubcommandApp()
    for name, (where, summary) in _COMMANDS.items():
        command: Any = _NotNamed
        if name == arguments[0] or arguments[0].startswith("--tyro"):
            command = pkgutil.resolve_name(f"cokl_cli.commands.{where}")
            if not isinstance(command, type):  # a function, which makes a group of commands for the arguments
                command = command(arguments)
        own_words = name == arguments[0] and not isinstance(command, SubcommandApp)
        commands.command(command, name=name, help=None if own_words else summary)
    return commands


@dataclass(frozen=True)
class _NotNamed:
    """Stands for a command that is not named; for a function in its place the parser would load a type checker."""


def _parse(arguments: list[str]) -> Command:
    """The command that the arguments name. Raises InputError; exits for --help."""
    arguments = _overrides_first(arguments)
    tyro._experimental_options["ansi_codes"] = not os.environ.get("NO_COLOR")
    with PATHS, errors.on_parse_error(partial(_refuse, arguments)):  # the parser itself draws a box and exits
        return application(arguments).cli(prog="cokl", description=_DESCRIPTION, args=arguments, config=_STYLE)


def _refuse(arguments: list[str], event: errors.ParseErrorEvent) -> NoReturn:
    """Say in one line what the parser refuses, with the nearest name. Raises InputError."""
    match event:
        case errors.UnrecognizedArgs(tokens=[token, *_]) | errors.MissingArgs(unrecognized_tokens=[token, *_]):
            asked = [*takewhile(lambda word: word != token, arguments[:2]), "--help"]
            meant = did_you_mean(token.partition("=")[0], _listed(asked))
            said = f"unknown {token}{meant}; `{shlex.join(['cokl', *asked])}` lists what there is"
        case errors.MissingArgs(missing_arguments=missing):
            said = f"missing: {', '.join(one.arg.lowered.name_or_flags[-1].rpartition('.')[2] for one in missing)}"
        case errors.MissingSubcommand(subcommand_spec=group):
            said = f"{' '.join(['cokl', *arguments])}: expected one of {', '.join(group.parser_from_name)}"
        case errors.InvalidChoice(argument=argument, value=value, choices=choices):
            got = f"{value!r}{did_you_mean(value, choices)}"
            said = f"{argument.display_name()}: expected one of {', '.join(choices)}, got {got}"
        case errors.InstantiationFailure(argument=argument, message=message):
            where = f"{argument.display_name()} {argument.lowered.metavar}: " if argument else ""
            said = where + re.sub(*_PYTHONS, message.splitlines()[0])
        case errors.BadValue(argument=argument):
            said = f"{argument.display_name()}: expected {argument.lowered.metavar} after it"
        case _:
            said = f"these options do not go together; `{event.prog} --help` lists them"
    raise InputError(said)


def _listed(asked: list[str]) -> list[str]:
    """The commands and options that a help lists, the one place where the parser tells them."""
    shown = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(shown):
        application(asked).cli(prog="cokl", args=asked, config=_STYLE)
    return re.findall(r"(?<=• )[a-z-]+|(?<!\S)--[\w-]+", shown.getvalue())


_COMMANDS = {
    "demo": ("demo:Demo", "What plain RL and CoKL make of a language model's answers, in ten minutes."),
    "bandit": ("bandit:laboratory", "The controlled experiment and the labs."),
    "theory": ("theory:checks", "Every claim of the paper checked, and any regularizer's optimum."),
    "llm": ("llm:bridge", "The LLM experiment on VeRL: SmolLM2 on a CPU, Qwen3 on GPUs."),
    "report": ("report:HtmlReport", "Everything that was measured, as one interactive HTML page."),
    "logbook": ("logbook:Logbook", "REPRODUCTION.md: each claim of the paper with its verdict."),
    "reproduce": ("reproduce:reproduce", "The controlled experiment and the theory, from nothing to verdicts."),
}
_PYTHONS = (
    r"(?:invalid literal for (int)\(\) with base 10|could not convert string to float): ",
    lambda found: f"expected a {'whole ' if found[1] else ''}number, got ",
)
"""What Python says of a text that is no number, and how it is told."""
_STYLE = (tyro.conf.OmitArgPrefixes,)
_DESCRIPTION = (
    "Correctness-conditioned KL regularization: experiments, figures and checks. `cokl --version` prints the version."
)


def _overrides_first(arguments: list[str]) -> list[str]:
    """The arguments of `cokl llm` with VeRL's overrides before all options, whose lists would swallow them."""
    if arguments[:1] != ["llm"]:
        return arguments
    overrides = [argument for argument in arguments if re.match(r"~[\w@/.]+$|[+~]{0,2}[\w@/]+(\.[\w@/]+)+=", argument)]
    others = [argument for argument in arguments if argument not in overrides]
    return [*others[:2], *overrides, *others[2:]]
