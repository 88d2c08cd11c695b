"""VeRL's view of a machine without a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase


def _always(value: Any) -> Callable[..., Any]:
    """A method that gives this, whatever it is asked."""
    return lambda *arguments, **options: value


_NOTHING = ("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats")
_NO_MEMORY = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")


class CPUPlatform(PlatformBase):
    """A CPU as VeRL's accelerator. Ray's "GPU" resource is only a slot name: ray.init hands out virtual ones."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = SimpleNamespace(  # what VeRL asks of torch.cuda
        is_available=_always(False),
        current_device=_always("cpu"),
        device_count=_always(1),
        get_device_name=_always("CPU"),
        manual_seed=torch.manual_seed,
        manual_seed_all=torch.manual_seed,
        get_rng_state=torch.get_rng_state,
        set_rng_state=torch.set_rng_state,
        mem_get_info=_always((0, 0)),
        is_bf16_supported=_always(True),
        **dict.fromkeys(_NOTHING, _always(None)),
        **dict.fromkeys(_NO_MEMORY, _always(0)),
        **dict.fromkeys(("device", "stream"), _always(contextlib.nullcontext())),
    )

    is_available = _always(False)
    is_platform_available = _always(True)
    current_device = _always("cpu")  # VeRL hands it to PyTorch as a device
    device_count = _always(1)
    set_device = synchronize = empty_cache = set_allocator_settings = _always(None)
    profiler_start = profiler_stop = cudart = _always(None)
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    get_device_capability = _always((None, None))
    communication_backend_name = _always("gloo")
    visible_devices_envvar = _always("CUDA_VISIBLE_DEVICES")
    nvtx_range = _always(contextlib.nullcontext())
    ray_resource_name = _always("GPU")
    is_ipc_supported = _always(False)

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]
