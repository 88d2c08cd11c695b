"""The CoKL method: regularizers, correctness decomposition, GRPO, floor and metrics, as pure functions on tensors.

`cokl.loss` and `cokl.weights` turn log-probabilities and rewards into a regularizer's loss (`cokl.arrays`); the rest is
in modules. A name is imported when it is first used, so that the command line starts without PyTorch.

Examples:
    >>> import cokl, torch
    >>> log_probs = torch.tensor([[-1.0, -2.0]], requires_grad=True)  # (prompts, fresh responses), in nats
    >>> cached = torch.tensor([[-3.0]], requires_grad=True)  # (prompts, the reference's responses)
    >>> cokl.loss(log_probs, torch.tensor([[1, 0]]), cached, torch.tensor([[1]]), beta=0.1).backward()
    >>> log_probs.grad, cached.grad
    (tensor([[0.1000, 0.0000]]), tensor([[-0.1000]]))
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what `__getattr__` gives, for editors and type checkers
    from cokl import groups, methods, metrics, regularizers
    from cokl.arrays import loss, weights
    from cokl.grpo import group_advantages, grpo_loss
    from cokl.policy import CorrectSet, Policy

__version__ = "0.1.0"
__all__ = [
    "CorrectSet",
    "Policy",
    "__version__",
    "group_advantages",
    "groups",
    "grpo_loss",
    "loss",
    "methods",
    "metrics",
    "regularizers",
    "weights",
]
_MODULES = {
    "CorrectSet": "policy",
    "Policy": "policy",
    "group_advantages": "grpo",
    "grpo_loss": "grpo",
    "loss": "arrays",
    "weights": "arrays",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"cokl.{_MODULES[name]}"), name)
    if name in __all__:
        return import_module(f"cokl.{name}")
    raise AttributeError(f"module 'cokl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
