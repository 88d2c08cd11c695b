"""What would spoil a training with a regularizer of one's own, found in a second and told in a line.

It is looked at where training starts, at the reference, close to it and at ordinary policies, on stacks as training has
them: several runs (R, B, A) beside one reference (1, B, A).

Assumption beyond the paper: a regularizer is a distance of the wrong sign if its gradient vanishes at the reference and
its value is lower everywhere else. One whose gradient does not vanish there, such as an entropy, may be negative and
fall: no sign of it is wrong. Kinks and flat parts, such as those of total variation and free bits, are welcome.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from cokl import regularizers
from cokl.policy import CorrectSet, Policy
from cokl.regularizers import Regularizer
from cokl.support.errors import InputError

_RUNS, _CONTEXTS, _ACTIONS, _CORRECT = 4, 8, 20, 6
_DISTANCES = {0.0: "at the reference", 1e-4: "close to the reference", 1e-2: "close to the reference"}
"""Standard deviations of what is added to the reference's logits, of size 1."""


def require_trainable(name: str, dtype: torch.dtype = torch.float32) -> None:
    """Raises InputError, which names the cause, for a regularizer that would not train, or train something else.

    dtype: of the training.
    """
    regularizer = regularizers.get(name)
    policy, reference = _policies(1.0, torch.float64)
    alone = Policy(policy.logits[:1], policy.correct)
    value, gradient = _told(regularizer, alone, reference, "at an ordinary policy")
    if not torch.allclose(regularizer.logit_gradient(alone, reference), gradient):
        raise InputError(f"{name}: logit_gradient is not the gradient of its value, which autograd derives")
    if not bool((gradient.sum(-1).abs() <= 1e-6 * gradient.abs().sum(-1) + 1e-9).all()):
        remedy = "compute it from policy.log_probs or policy.probs"
        raise InputError(f"{name}: value changes when a constant is added to all logits, the same policy; {remedy}")
    shapes = f"policies {tuple(policy.logits.shape)} beside a reference {tuple(reference.logits.shape)}"
    stacked, _ = _told(regularizer, policy, reference, f"on a stack of runs, {shapes}, which broadcasts against them")
    if not torch.allclose(stacked[:1], value):
        raise InputError(f"{name}: value depends on the other runs of a stack, {shapes}; treat each by itself")
    same, _ = _policies(0.0, torch.float64)
    start, at_start = _told(
        regularizer, same, Policy(same.logits[:1], same.correct), f"{_DISTANCES[0.0]}, where training starts"
    )
    if bool((at_start.abs() <= 1e-6 * gradient.abs().max()).all()) and bool((stacked < start).all()):
        ends = f"{float(start.mean()):.3g}, and falls to {float(stacked.mean()):.3g} away from it"
        raise InputError(f"{name}: value is largest at the reference, {ends}: its sign is wrong for a distance")
    kind = str(dtype).removeprefix("torch.")
    for distance, where in _DISTANCES.items():
        _told(regularizer, *_policies(distance, dtype), f"{where} in {kind}, where training starts")


def _policies(distance: float, dtype: torch.dtype) -> tuple[Policy, Policy]:
    """(R, B, A) policies so far from a (1, B, A) reference, which has log-probabilities as training gives them."""
    generator = torch.Generator().manual_seed(0)
    sets = CorrectSet.from_mask((torch.arange(_ACTIONS) < _CORRECT).expand(1, _CONTEXTS, -1))
    logits = torch.randn(1, _CONTEXTS, _ACTIONS, generator=generator, dtype=torch.float64)
    moved = logits + distance * torch.randn(_RUNS, _CONTEXTS, _ACTIONS, generator=generator, dtype=torch.float64)
    return Policy(moved.to(dtype), sets), Policy.from_log_probs(logits.to(dtype).log_softmax(-1), sets)


def _told(regularizer: Regularizer, policy: Policy, reference: Policy, where: str) -> tuple[Tensor, Tensor]:
    """Value and autograd's gradient. Raises InputError where either fails or is not finite."""
    try:
        with _Culprit() as culprit:
            value = regularizer.value(policy, reference)
            gradient = Regularizer.logit_gradient(regularizer, policy, reference)
    except InputError:
        raise
    except Exception as error:  # whatever the user's own code raises
        said = " ".join(str(error).split())
        raise InputError(f"{regularizer.name}: {type(error).__name__} in its value {where}: {said}") from error
    for what, numbers in (("value", value), ("the gradient of value", gradient)):
        if not bool(numbers.isfinite().all()):
            raise InputError(
                f"{regularizer.name}: {what} is not finite {where}: {culprit.name or 'an operation'} is at or beyond "
                "the end of its range there; leave it out or clamp what goes into it"
            )
    return value, gradient


class _Culprit(TorchFunctionMode):
    """Notes the first operation that makes numbers that are not finite of finite ones, forward or backward."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.is_floating_point():
            given = [one for one in args if isinstance(one, Tensor)]
            name = getattr(func, "__name__", "")
            if not bool(result.isfinite().all()) and all(bool(one.isfinite().all()) for one in given):
                self.name = self.name or name
            if result.grad_fn is not None:
                result.grad_fn.register_hook(lambda made, came, name=name: self._backward(made, came, name))
        return result

    def _backward(self, made: Any, came: Any, name: str) -> None:
        finite = [all(bool(one.isfinite().all()) for one in some if one is not None) for some in (made, came)]
        if finite == [False, True]:
            self.name = self.name or name
