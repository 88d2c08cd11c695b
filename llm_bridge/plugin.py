"""What a VeRL run loads to have this package's trainers: `VERL_USE_EXTERNAL_MODULES=llm_bridge.plugin`."""

from llm_bridge.trainer import agent_loop, buffer_filler, joint, preflight, several  # noqa: F401

preflight.install()
