"""What a worker of vLLM's CPU build needs to take new weights from the actor."""

from __future__ import annotations

import torch
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from vllm.model_executor.layers import utils
from vllm.model_executor.models.utils import AutoWeightsLoader


def keep_weight(layer: torch.nn.Module, remove_weight: bool = False) -> None:
    """Use the layer's weight as it is: vLLM would pack it and drop the original, and so could not be given another."""
    layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]


def tied_weights_may_come_apart(self: AutoWeightsLoader, loaded: set[str]) -> None:
    """Since 0.29 vLLM refuses an update that has a tied weight and not the one it is tied to, and VeRL 0.9.1 sends a
    model larger than its bucket in several updates (verl #8014). The GPU's vLLM, 0.24, does not look.
    """


class CPUWorkerExtension(vLLMColocateWorkerExtension):
    """VeRL's worker extension, whose linear layers keep their weights."""

    def __new__(cls, **kwargs):
        utils.dispatch_cpu_unquantized_gemm = keep_weight
        AutoWeightsLoader._check_skipped_aliases = tied_weights_may_come_apart
        return super().__new__(cls, **kwargs)
