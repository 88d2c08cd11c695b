"""The CoKL method: regularizers, correctness decomposition, GRPO, floor and metrics, as pure functions on tensors.

Names are loaded when first used, so that `import cokl` and the command line start without PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cokl import methods, regularizers
    from cokl.decomposition import decompose_kl
    from cokl.groups import ResponseGroups, SurrogateConfig, row_surrogate_loss, surrogate_loss
    from cokl.methods import Method
    from cokl.policy import CorrectSet, Policy
    from cokl.regularizers import Regularizer

__version__ = "0.1.0"
__all__ = [
    "CorrectSet",
    "Method",
    "Policy",
    "Regularizer",
    "ResponseGroups",
    "SurrogateConfig",
    "decompose_kl",
    "methods",
    "regularizers",
    "row_surrogate_loss",
    "surrogate_loss",
]

_HOMES = {
    "CorrectSet": "policy",
    "Method": "methods",
    "Policy": "policy",
    "Regularizer": "regularizers",
    "ResponseGroups": "groups",
    "SurrogateConfig": "groups",
    "decompose_kl": "decomposition",
    "row_surrogate_loss": "groups",
    "surrogate_loss": "groups",
}


def __getattr__(name: str) -> Any:
    if name in ("methods", "regularizers"):
        return importlib.import_module(f"cokl.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'cokl' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"cokl.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
