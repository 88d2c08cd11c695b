"""What VeRL loads by itself where this package is installed: a command with `cokl.*` has to name the plug-in too."""

import sys

import verl

from llm_bridge.trainer.start.command import check_command

check_command(sys.orig_argv, verl.__version__, loaded="llm_bridge.plugin" in sys.modules)
