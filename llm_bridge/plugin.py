"""What a VeRL run loads to have this package's trainers: `VERL_USE_EXTERNAL_MODULES=llm_bridge.plugin`."""

import sys

import verl

from llm_bridge.trainer.start.command import check_command, refuse
from llm_bridge.trainer.start.versions import PINNED

check_command(sys.orig_argv, verl.__version__)
try:
    from llm_bridge.trainer import agent_loop, buffer_filler, joint  # noqa: F401
    from llm_bridge.trainer.start import preflight
except ImportError as error:
    if not (error.name or "").startswith(("verl", "transfer_queue")):
        raise
    refuse(f"verl {verl.__version__} does not have what the trainers extend ({error}); expected {PINNED['verl']}")

preflight.install()
