"""The options of every command that prints results, `--quiet` and `--json`, and what they do."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import tyro


@dataclass(frozen=True, kw_only=True)
class Output:
    """A command whose results can be read by a person or by a program."""

    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print nothing but errors; the exit code says whether it succeeded."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the results as JSON to standard output, and all else to standard error."""

    def outcome(self) -> Any:
        """The results and where they are, as plain JSON values; called after a run that did not raise."""
        raise NotImplementedError


@contextlib.contextmanager
def output_of(command: object) -> Iterator[None]:
    """Run a command in this context: its options say where its output goes, and its results are printed at the end."""
    quiet, as_json = getattr(command, "quiet", False), getattr(command, "json", False)
    with contextlib.ExitStack() as stack:
        if quiet:
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        elif as_json:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield
    if as_json and isinstance(command, Output):
        print(json.dumps(command.outcome(), indent=1, default=str))
