"""What a worker of vLLM's CPU build needs to take new weights from the actor."""

from __future__ import annotations

import torch
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from vllm.model_executor.layers import utils


def keep_weight(layer: torch.nn.Module, remove_weight: bool = False) -> None:
    """Use the layer's weight as it is: vLLM would pack it and drop the original, and so could not be given another."""
    layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]


class CPUWorkerExtension(vLLMColocateWorkerExtension):
    """VeRL's worker extension, whose linear layers keep their weights."""

    def __new__(cls, **kwargs):
        utils.dispatch_cpu_unquantized_gemm = keep_weight
        return super().__new__(cls, **kwargs)
