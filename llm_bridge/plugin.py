"""What a VeRL run loads to have this package's trainers: `VERL_USE_EXTERNAL_MODULES=llm_bridge.plugin`."""

import os
import sys

import verl

from llm_bridge.command import PREFLIGHT, check_version, handed_on, has_options, is_main

check_version(verl.__version__)
from llm_bridge.experiment import rewarded  # noqa: E402, F401  after the version, whose parts they extend
from llm_bridge.trainer import agent_loop, buffer_filler  # noqa: E402, F401

if has_options(sys.orig_argv) or is_main(sys.orig_argv):
    sys.argv[1:1] = [PREFLIGHT, *handed_on(os.environ)]  # before flags of Hydra's, such as --cfg job
