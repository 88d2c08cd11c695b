"""VeRL's view of a machine without a GPU."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase


class CPUPlatform(PlatformBase):
    """A CPU as VeRL's accelerator. Ray's "GPU" resource is only a slot name: ray.init hands out virtual ones."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = SimpleNamespace(  # what VeRL asks of torch.cuda
        is_available=lambda: False,
        current_device=lambda: "cpu",
        device_count=lambda: 1,
        get_device_name=lambda *arguments: "CPU",
        set_device=lambda index: None,
        synchronize=lambda *arguments: None,
        empty_cache=lambda: None,
        ipc_collect=lambda: None,
        manual_seed=torch.manual_seed,
        manual_seed_all=torch.manual_seed,
        get_rng_state=torch.get_rng_state,
        set_rng_state=torch.set_rng_state,
        memory_allocated=lambda *arguments: 0,
        memory_reserved=lambda *arguments: 0,
        max_memory_allocated=lambda *arguments: 0,
        max_memory_reserved=lambda *arguments: 0,
        reset_peak_memory_stats=lambda *arguments: None,
        mem_get_info=lambda *arguments: (0, 0),
        is_bf16_supported=lambda: True,
        device=lambda index: contextlib.nullcontext(),
        stream=lambda stream: contextlib.nullcontext(),
    )

    def is_available(self) -> bool:
        return False

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return True

    def current_device(self) -> str:  # VeRL hands it to PyTorch as a device
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None
