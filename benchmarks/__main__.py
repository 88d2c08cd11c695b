"""`python -m benchmarks COMMAND`: everything that measures speed and memory."""

from typing import Any

import tyro

from benchmarks.parts import Parts
from benchmarks.scaling import Scaling
from benchmarks.sweep import Sweep

if __name__ == "__main__":
    command: Any = tyro.extras.subcommand_cli_from_dict(
        {"sweep": Sweep, "parts": Parts, "scaling": Scaling}, prog="python -m benchmarks", description=__doc__
    )
    raise SystemExit(command.run())
