"""What VeRL loads by itself where this package is installed: a command with `cokl.*` has to name the plug-in too."""

import sys

from llm_bridge.command import has_options, refuse

if has_options(sys.orig_argv) and "llm_bridge.plugin" not in sys.modules:
    refuse("VERL_USE_EXTERNAL_MODULES: expected llm_bridge.plugin in it; without the plug-in cokl.* has no effect")
