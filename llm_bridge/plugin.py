"""What a VeRL run loads to have this package's trainers: `VERL_USE_EXTERNAL_MODULES=llm_bridge.plugin`."""

from llm_bridge.experiment import several  # noqa: F401
from llm_bridge.trainer import agent_loop, buffer_filler, joint, preflight  # noqa: F401

preflight.install()
