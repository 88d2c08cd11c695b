"""`python -m benchmarks COMMAND`: everything that measures speed, and what a GPU computes."""

import sys
from typing import Any

import tyro

from benchmarks.actor import Actor
from benchmarks.engines import Engines
from benchmarks.loop import Loop
from benchmarks.sweep import Sweep
from cokl.support.errors import InputError

if __name__ == "__main__":
    command: Any = tyro.extras.subcommand_cli_from_dict(
        {"sweep": Sweep, "actor": Actor, "loop": Loop, "engines": Engines},
        prog="python -m benchmarks",
        description=__doc__,
    )
    try:
        raise SystemExit(command.run())
    except InputError as error:
        print(f"benchmarks: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
