"""The `cokl` command line, the only package that knows all others.

A command is a frozen dataclass whose fields are its options and whose `run` does it; heavy imports are inside `run`, so
that help appears at once.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import itertools
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Collection
from functools import partial
from typing import Any, NoReturn, Protocol

import tyro
from tyro.extras import SubcommandApp

from bandit.calibration.config import CALIBRATION_PRESETS
from bandit.finite_group.config import PRESETS as FINITE_GROUP_PRESETS
from bandit.robustness.config import ROBUSTNESS_PRESETS
from bandit.sequences.config import SEQUENCE_PRESETS
from bandit.shift.config import SHIFT_PRESETS
from bandit.sweep.config import PRESETS
from cokl.support.errors import InputError
from cokl_cli.commands import bandit, doctor, figures, llm, llm_report, logbook, report, reproduce, rerun, theory
from cokl_cli.output import asked_for


class Command(Protocol):
    """What a subcommand is: its fields are its options."""

    def run(self) -> int:
        """Do it and return the exit code. Raises InputError for what the user can mend."""


def main(argv: list[str] | None = None) -> None:
    """Run one command.

    Ends with exit code 0, 1 (a check failed), 2 (bad input, or what the system refuses), 130 (Ctrl-C), 141 (no reader),
    129 or 143 (SIGHUP, SIGTERM).
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
            print(_WHAT_THERE_IS)
            sys.exit(0)
        command = _parse(arguments)
        with asked_for(command):
            code = command.run()
        sys.stdout.flush()
        sys.exit(code)
    except InputError as error:
        _fail(str(error))
    except MemoryError:
        _fail("not enough memory for this configuration; choose smaller settings or fewer --jobs")
    except KeyboardInterrupt as stopped:
        again = shlex.join(["cokl", *arguments])
        print(f"\ncokl: interrupted; finished work is saved, go on from there with: {again}", file=sys.stderr)
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
    """SIGTERM or SIGHUP, its number: ends a command as Ctrl-C does."""


def _terminated(number: int, _: object) -> None:
    raise Terminated(number)


def _end_now(code: int) -> NoReturn:
    """End this process with what is registered for its end, without the seconds in which libraries are taken down."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)


def _fail(message: str) -> NoReturn:
    print(f"cokl: error: {message}", file=sys.stderr)
    sys.exit(2)


def _silence_stdout() -> None:
    """Let what is left to be written, as Python ends, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def application(arguments: list[str]) -> SubcommandApp:
    """All commands. The preset or configuration named in `arguments` is where their other defaults come from."""
    preset = _asked(arguments, "--preset", PRESETS, "paper")
    sweeps = {"preset": preset, "config": PRESETS[preset]}
    finite_groups = {"preset": preset, "config": FINITE_GROUP_PRESETS[preset]}
    experiment = llm.DEFAULTS[_asked(arguments, "--preset", llm.DEFAULTS, "tiny")]

    laboratory = SubcommandApp()
    laboratory.command(name="sweep")(partial(bandit.Sweep, **sweeps))
    laboratory.command(name="report")(bandit.Report)
    laboratory.command(name="robustness")(partial(bandit.Robustness, preset=preset, config=ROBUSTNESS_PRESETS[preset]))
    laboratory.command(name="shift")(partial(bandit.Shift, preset=preset, config=SHIFT_PRESETS[preset]))
    laboratory.command(name="calibration")(
        partial(bandit.Calibration, preset=preset, config=CALIBRATION_PRESETS[preset])
    )
    laboratory.command(name="phase")(partial(bandit.Phase, preset=preset))
    laboratory.command(name="sequences")(partial(bandit.Sequences, preset=preset, config=SEQUENCE_PRESETS[preset]))
    laboratory.command(name="finite-group")(partial(bandit.FiniteGroup, **finite_groups))

    checks = SubcommandApp()
    checks.command(name="check")(theory.Check)
    checks.command(name="optimum")(theory.Optimum)
    checks.command(name="figures")(theory.TheoryFigures)

    bridge = SubcommandApp()
    for name, command in {
        "run": llm.Run,
        "prefetch": llm.Prefetch,
        "prepare": llm.Prepare,
        "train": llm.Train,
        "buffer": llm.BuildBuffer,
        "evaluate": llm.Evaluate,
        "report": llm.Report,
    }.items():
        bridge.command(name=name)(partial(command, **experiment))
    bridge.command(name="tables")(llm_report.Tables)
    bridge.command(name="normalize")(llm_report.Normalize)
    bridge.command(name="validate-reward")(llm_report.ValidateReward)
    bridge.command(name="check-paper")(llm_report.CheckPaper)

    commands = SubcommandApp()
    commands.command(laboratory, name="bandit", help="The controlled experiment, the labs and the phase diagrams.")
    commands.command(checks, name="theory", help="Every claim of the paper checked, and any regularizer's optimum.")
    commands.command(bridge, name="llm", help="The LLM experiment on VeRL: tiny on a CPU, Qwen3 on GPUs.")
    commands.command(name="figures")(figures.Figures)
    commands.command(name="report")(report.HtmlReport)
    commands.command(name="logbook")(logbook.Logbook)
    commands.command(name="rerun")(rerun.Rerun)
    commands.command(name="reproduce")(partial(reproduce.Reproduce, **sweeps))
    commands.command(name="doctor")(doctor.Doctor)
    return commands


def _parse(arguments: list[str]) -> Command:
    """The command that the arguments name. Raises InputError; exits for --help."""
    arguments = _overrides_first(arguments)
    # The parser prints a box and exits, with no hook between: so its box is read, for the one line of our own errors.
    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages):
            command: Command = application(arguments).cli(
                prog="cokl", description=_DESCRIPTION, args=arguments, config=_STYLE
            )
    except SystemExit as ended:
        if ended.code:
            raise InputError(_one_line(messages.getvalue())) from None
        raise
    return command


_STYLE = (tyro.conf.OmitArgPrefixes,)
_WHAT_THERE_IS = """\
cokl: correctness-conditioned KL regularization, experiments and theorems
  cokl reproduce --preset quick   controlled experiment and theory, made small
  cokl bandit sweep|report        train every method; judge the paper's claims
  cokl bandit shift|phase|...     the labs: forgetting, maps, groups, sequences
  cokl figures|report|logbook     pictures; one page of all; every verdict
  cokl theory check|optimum       the theorems; where a regularizer leads
  cokl llm run --preset tiny      the LLM experiment on VeRL, end to end
  cokl doctor                     what is installed and what works here
Every command: --help; those that print results: --quiet, --json.
Completion: cokl --tyro-print-completion bash|zsh|tcsh"""
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
