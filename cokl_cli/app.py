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
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NoReturn, Protocol

import tyro
from tyro.extras import SubcommandApp

from cokl.support.errors import InputError, did_you_mean
from cokl_cli.output import output_of


class Command(Protocol):
    """A subcommand; its fields are its options."""

    def run(self) -> int:
        """Do the work and return the exit code. Raises InputError for what the user can fix."""


def main(argv: list[str] | None = None) -> None:
    """Run one command.

    Exit codes: 0; 1, a check failed; 2, bad input, or what the system refuses; 130, Ctrl-C; 141, no reader; 129 or 143,
    SIGHUP or SIGTERM.
    """
    arguments = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ± is no reason to stop
    if threading.current_thread() is threading.main_thread():
        for ending in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(ending, _terminated)
    try:
        if not arguments:
            print(_OVERVIEW)
            sys.exit(0)
        if arguments == ["--version"]:
            from importlib.metadata import version

            print(f"cokl {version('cokl')}")
            sys.exit(0)
        command = _parse(arguments)
        with output_of(command):
            code = command.run()
        sys.stdout.flush()
        sys.exit(code)
    except (InputError, MemoryError, ModuleNotFoundError) as error:
        _fail(_said(error))
    except KeyboardInterrupt as stopped:
        again = shlex.join(["cokl", *arguments])
        print(f"\ncokl: interrupted; finished work is saved; resume with: {again}", file=sys.stderr)
        code = 128 + (stopped.args[0] if isinstance(stopped, Terminated) else signal.SIGINT)
        if argv is None:
            _end_now(code)
        sys.exit(code)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        _silence_stdout()
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        _silence_stdout()
        where = f" ({error.filename})" if error.filename else ""
        _fail(f"{error.strerror or error}{where}")


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, whose number is its argument: ends a command as Ctrl-C does."""


def _terminated(number: int, _: object) -> None:
    raise Terminated(number)


def _end_now(code: int) -> NoReturn:
    """Run the registered exit functions and end, without the seconds that libraries take for their clean-up."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)
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
        return f"{package} is not installed; `cokl doctor` has the command that installs it"
    if isinstance(error, MemoryError):
        return "not enough memory for this configuration; choose smaller settings or fewer --jobs"
    return str(error)


def _fail(message: str) -> NoReturn:
    print(f"cokl: error: {message}", file=sys.stderr)
    sys.exit(2)


def _silence_stdout() -> None:
    """Discard what Python would still write to standard output as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def application(arguments: list[str]) -> SubcommandApp:
    """All commands, but of those that `arguments` do not name only name and help.

    So a command starts without the imports of the others, and `cokl --help` without any.
    """
    first = arguments[0] if arguments else ""
    decided = first in _COMMANDS or first in ("-h", "--help")
    commands = SubcommandApp()
    for name, (where, summary) in _COMMANDS.items():
        command: Any = _NotNamed if decided and name != first else _resolved(where, arguments)
        own_words = name == first and not isinstance(command, SubcommandApp)
        commands.command(command, name=name, help=None if own_words else summary)
    return commands


def _resolved(where: str, arguments: list[str]) -> Any:
    """The dataclass of this name, or what the function of this name makes of the arguments."""
    command = pkgutil.resolve_name(f"cokl_cli.commands.{where}")
    return command if isinstance(command, type) else command(arguments)


@dataclass(frozen=True)
class _NotNamed:
    """Stands for a command that is not named; for a function in its place the parser would load a type checker."""


def _parse(arguments: list[str]) -> Command:
    """The command that the arguments name. Raises InputError; exits for --help."""
    arguments = _overrides_first(arguments)
    # The parser prints its errors in a box and exits, without a hook: the box is captured and made into one line.
    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages):
            command: Command = application(arguments).cli(
                prog="cokl", description=_DESCRIPTION, args=arguments, config=_STYLE
            )
    except SystemExit as ended:
        if ended.code:
            raise InputError(_message(arguments, messages.getvalue())) from None
        raise
    return command


_COMMANDS = {
    "bandit": ("bandit:laboratory", "The controlled experiment, the labs and the phase diagrams."),
    "theory": ("theory:checks", "Every claim of the paper checked, and any regularizer's optimum."),
    "llm": ("llm:bridge", "The LLM experiment on VeRL: tiny on a CPU, Qwen3 on GPUs."),
    "figures": ("figures:Figures", "The paper's figures, drawn from a finished sweep."),
    "report": ("report:HtmlReport", "Everything that was measured, as one interactive HTML page."),
    "logbook": ("logbook:Logbook", "REPRODUCTION.md: each claim of the paper with its verdict."),
    "reproduce": ("reproduce:reproduce", "The controlled experiment and the theory, from nothing to verdicts."),
    "doctor": ("doctor:Doctor", "What is installed, which parts work here, what the rest needs."),
}
_RENAMED = {"report": "verdicts"}
"""Former names of commands of `cokl bandit`."""
_STYLE = (tyro.conf.OmitArgPrefixes,)
_OVERVIEW = """\
cokl: correctness-conditioned KL regularization, experiments and theorems
  cokl reproduce --preset quick   controlled experiment and theory, made small
  cokl bandit sweep|verdicts      train every method; judge the paper's claims
  cokl bandit shift|phase|...     the labs: forgetting, maps, groups, sequences
  cokl figures|report|logbook     pictures; one page of all; every verdict
  cokl theory check|optimum       the theorems; where a regularizer leads
  cokl llm run --preset tiny      the LLM experiment on VeRL, end to end
  cokl doctor                     what is installed and what works here
Every command: --help; those that print results: --quiet, --json.
Completion: cokl --tyro-print-completion bash|zsh|tcsh"""
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


def _sections(box: str) -> list[str]:
    """The texts of the parser's error box, without its frame, title and rules: the message, and what may help."""
    parts = re.split(r"^[\s│|+]*(?:[╭╰].*|[─-]{3,}[\s│|+]*)$", box, flags=re.MULTILINE)
    texts = [" ".join(" ".join(line.strip("│| ") for line in part.splitlines()).split()) for part in parts]
    return [text for text in texts if text][0 if "╭" in box else 1 :]


def _message(arguments: list[str], box: str) -> str:
    """The parser's error as one line, with what an unknown command or option may have been."""
    message, *helps = _sections(box) or [""]
    message = re.sub(r"^Error parsing __tyro\S*: ", "", message).split(" Arguments are applied")[0]
    for text in helps:
        if text.startswith("Available subcommands: "):
            return message + _commands_meant(arguments, text.removeprefix("Available subcommands: ").split(", "))
        if text.startswith("Perhaps you meant"):
            typed = " ".join(["cokl", *arguments])
            options = [
                option
                for option, described in re.findall(r"(?<!\S)(--(?!help)[\w-]+)(.*?)(?=\s--(?!help)[\w-]+\s|$)", text)
                if any(
                    typed.startswith(f"{command} ") for command in re.findall(r"in (cokl [a-z -]+?) --help", described)
                )
            ]
            unknown = next((one for one in arguments if one.startswith("--") and one not in options), "")
            return message + did_you_mean(unknown, options)
    return message


def _commands_meant(arguments: list[str], listed: list[str]) -> str:
    above = [one for one in arguments[:1] if one in _COMMANDS]
    known = {name: " ".join(["cokl", *above, name]) for name in listed}
    known |= {old: f"cokl bandit {new}" for old, new in _RENAMED.items() if new in listed}
    if not above:
        from cokl_cli.experiments import experiments

        labs = (name for name, one in experiments().items() if type(one).__module__.startswith("bandit."))
        known = {name: f"cokl bandit {name}" for name in labs} | known
    return f"{did_you_mean(arguments[len(above)], known)}; expected one of {', '.join(listed)}"
