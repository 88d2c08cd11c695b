"""`python -m benchmarks sweep`: everything that measures speed and memory."""

import sys

import tyro

from benchmarks.sweep import Sweep
from cokl.support.errors import InputError

if __name__ == "__main__":
    command = tyro.extras.subcommand_cli_from_dict({"sweep": Sweep}, prog="python -m benchmarks", description=__doc__)
    try:
        raise SystemExit(command.run())
    except InputError as error:
        print(f"benchmarks: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
