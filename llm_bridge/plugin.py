"""What a VeRL run loads to have this package's trainers: `VERL_USE_EXTERNAL_MODULES=llm_bridge.plugin`."""

import sys

import verl

from llm_bridge.command import PREFLIGHT, VERL, check_version, has_options, is_main, refuse

if has_options(sys.orig_argv):
    check_version(verl.__version__)
try:
    from llm_bridge.experiment import trainer  # noqa: F401
    from llm_bridge.trainer import agent_loop, buffer_filler, verl_parts  # noqa: F401
except ImportError as error:
    if not (error.name or "").startswith(("verl", "transfer_queue")):
        raise
    refuse(f"verl {verl.__version__} does not have what the trainers extend ({error}); expected {VERL}")

if gone := list(verl_parts.missing()):
    refuse(f"verl {verl.__version__} lacks {gone[0]}; expected {VERL}")
if has_options(sys.orig_argv) or is_main(sys.orig_argv):
    sys.argv.append(PREFLIGHT)
