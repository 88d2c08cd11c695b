"""What would spoil a training with a regularizer of one's own, found in a second and told in a line.

It is looked at where training starts, at the reference, close to it and at ordinary policies, on stacks as training has
them: several runs (R, B, A) beside one reference (1, B, A), with the actions and correct actions of the training.

The labs' prompts have equally many correct actions. Elsewhere they need not, and `cokl.policy` pads the smaller sets. A
value is looked at with padding too, since one that only the labs' equal sets keep from NaN is not the one that was
meant.

Assumption beyond the paper: a regularizer is a distance of the wrong sign if its gradient vanishes at the reference and
its value is lower everywhere else. One whose gradient does not vanish there, such as an entropy, may be negative and
fall: no sign of it is wrong. Kinks and flat parts, such as those of total variation and free bits, are welcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bandit.config import EnvironmentConfig
from cokl import regularizers
from cokl.policy import CorrectSet, Policy
from cokl.regularizers import Regularizer
from cokl.support.errors import InputError, told_of_users_code

_PAPERS = EnvironmentConfig()
_RUNS, _CONTEXTS = 4, 8
_DISTANCES = {0.0: "at the reference", 1e-4: "close to the reference", 1e-2: "close to the reference"}
"""Standard deviations of what is added to the reference's logits, of size 1."""
_PADDED = "where prompts differ in their number of correct answers, so that some have padding"


def require_trainable(name: str, environment: EnvironmentConfig = _PAPERS, dtype: torch.dtype = torch.float32) -> None:
    """Raises InputError, which names the cause, for a regularizer that would not train, or train something else.

    environment, dtype: of the training.
    """
    regularizer = regularizers.get(name)
    sizes = torch.full((_CONTEXTS,), environment.correct_actions)
    mask = torch.arange(environment.actions) < sizes[:, None]
    policy, reference = _policies(1.0, torch.float64, mask)
    alone = Policy(policy.logits[:1], policy.correct)
    ordinary = "at an ordinary policy"
    _, gradient = _told(regularizer, alone, reference, ordinary)
    _require_its_gradient(regularizer, alone, reference, gradient, ordinary)
    if not bool((gradient.sum(-1).abs() <= 1e-6 * gradient.abs().sum(-1) + 1e-9).all()):
        remedy = "compute it from policy.log_probs or policy.probs"
        raise InputError(f"{name}: value changes when a constant is added to all logits, the same policy; {remedy}")
    shapes = f"policies {tuple(policy.logits.shape)} beside a reference {tuple(reference.logits.shape)}"
    on_stack = f"on a stack of runs, {shapes}, which broadcasts against them"
    stacked, gradient = _told(regularizer, policy, reference, on_stack)
    _require_its_gradient(regularizer, policy, reference, gradient, on_stack)
    with told_of_users_code(name, "value of one run"):
        one_by_one = torch.cat(
            [regularizer.value(Policy(run[None], policy.correct), reference) for run in policy.logits]
        )
    if not torch.allclose(stacked, one_by_one):
        raise InputError(f"{name}: value depends on the other runs of a stack, {shapes}; treat each by itself")
    _require_each_prompt_by_itself(regularizer, policy, reference, mask, stacked, "")
    same, _ = _policies(0.0, torch.float64, mask)
    start, at_start = _told(
        regularizer, same, Policy(same.logits[:1], same.correct), f"{_DISTANCES[0.0]}, where training starts"
    )
    if bool((at_start.abs() <= 1e-6 * gradient.abs().max()).all()) and bool((stacked < start).all()):
        ends = f"{float(start.mean()):.3g}, and falls to {float(stacked.mean()):.3g} away from it"
        raise InputError(f"{name}: value is largest at the reference, {ends}: its sign is wrong for a distance")
    kind = str(dtype).removeprefix("torch.")
    for distance, where in _DISTANCES.items():
        _told(regularizer, *_policies(distance, dtype, mask), f"{where} in {kind}, where training starts")
    sizes[::2] = (environment.correct_actions + 1) // 2
    mask = torch.arange(environment.actions) < sizes[:, None]
    policy, reference = _policies(1.0, torch.float64, mask)
    padded, _ = _told(regularizer, policy, reference, _PADDED)
    _require_each_prompt_by_itself(regularizer, policy, reference, mask, padded, f" {_PADDED}")


def _require_its_gradient(
    regularizer: Regularizer, policy: Policy, reference: Policy, gradient: Tensor, where: str
) -> None:
    """gradient: autograd's."""
    with told_of_users_code(regularizer.name, f"logit_gradient {where}"):
        closed = regularizer.logit_gradient(policy, reference)
    if closed.shape != gradient.shape or not torch.allclose(closed, gradient):
        raise InputError(f"{regularizer.name}: logit_gradient is not the gradient of its value, which autograd derives")


def _require_each_prompt_by_itself(
    regularizer: Regularizer, policy: Policy, reference: Policy, mask: Tensor, values: Tensor, where: str
) -> None:
    """mask: (B, A), of the correct actions. values: (R, B), of the batch."""
    for prompt, correct in enumerate(mask):
        sets = CorrectSet.from_mask(correct.expand(1, 1, -1))
        own, theirs = (Policy(one.logits[:, prompt : prompt + 1], sets) for one in (policy, reference))
        with told_of_users_code(regularizer.name, f"value of one prompt with {int(correct.sum())} correct actions"):
            alone = regularizer.value(own, theirs)
        if not torch.allclose(values[:, prompt : prompt + 1], alone):
            raise InputError(
                f"{regularizer.name}: value depends on the other prompts of a batch{where}; treat each by itself, and "
                "sum over the actions alone, dim=-1"
            )


def _policies(distance: float, dtype: torch.dtype, mask: Tensor) -> tuple[Policy, Policy]:
    """(R, B, A) policies so far from a (1, B, A) reference, which has log-probabilities as training gives them.

    mask: (B, A), of the correct actions.
    """
    generator = torch.Generator().manual_seed(0)
    sets = CorrectSet.from_mask(mask[None])
    logits = torch.randn(1, *mask.shape, generator=generator, dtype=torch.float64)
    moved = logits + distance * torch.randn(_RUNS, *mask.shape, generator=generator, dtype=torch.float64)
    return Policy(moved.to(dtype), sets), Policy.from_log_probs(logits.to(dtype).log_softmax(-1), sets)


def _told(regularizer: Regularizer, policy: Policy, reference: Policy, where: str) -> tuple[Tensor, Tensor]:
    """Value and autograd's gradient. Raises InputError where either fails or is not finite."""
    with _Culprit() as culprit, told_of_users_code(regularizer.name, f"value {where}"):
        value = regularizer.value(policy, reference)
        gradient = Regularizer.logit_gradient(regularizer, policy, reference)
    for what, numbers, cause in (
        ("value", value, vars(value).get(_CAUSE)),
        ("the gradient of value", gradient, culprit.backward),
    ):
        if not bool(numbers.isfinite().all()):
            raise InputError(f"{regularizer.name}: {what} is not finite {where}: {cause or _beyond('an operation')}")
    return value, gradient


_CAUSE = "_cause"
"""Attribute of a tensor: what made it not finite; "" if nothing did."""


class _Culprit(TorchFunctionMode):
    """Notes at each tensor that is not finite which operation made it so of finite numbers, or NaN of infinite ones,
    such as the -inf of a mask; `backward` is that of the gradient, "" if there is none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.backward = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        given = [*_tensors([args, kwargs or {}], name in _CONSTANTS)]
        earlier = next(filter(None, (vars(one).get(_CAUSE) for one in given)), "")
        cause = partial(_cause, name, earlier, _worst(given))
        result = func(*args, **(kwargs or {}))
        for made in _tensors(args[0] if name == "__setitem__" else result):  # which gives nothing, and writes in place
            vars(made)[_CAUSE] = cause(_worst([made]))
            if made.grad_fn is not None:
                made.grad_fn.register_hook(partial(self._note, cause))
        return result

    def _note(self, cause: Callable[[int], str], made: Any, came: Any) -> None:
        if not _worst(_tensors(came)):
            self.backward = self.backward or cause(_worst(_tensors(made)))


_CONSTANTS = ("masked_fill", "masked_fill_", "where", "full", "full_like", "new_full", "fill_", "tensor", "__setitem__")
"""Operations that put a number of the user's in: where it is infinite, it was meant."""


def _tensors(given: Any, numbers: bool = False) -> Iterator[Tensor]:
    """Those of an operation's arguments or results, in lists, tuples and mappings too; with `numbers` also floats."""
    if isinstance(given, Tensor) or (numbers and isinstance(given, float)):
        yield torch.as_tensor(given)
    elif isinstance(given, list | tuple | dict):
        for one in given.values() if isinstance(given, dict) else given:
            yield from _tensors(one, numbers)


def _worst(tensors: Iterable[Tensor]) -> int:
    """0 where all numbers are finite, 1 where some are infinite, 2 where some are NaN."""
    return max((2 if bool(one.isnan().any()) else int(not bool(one.isfinite().all())) for one in tensors), default=0)


def _cause(operation: str, earlier: str, given: int, made: int) -> str:
    """What made numbers that are not finite: this operation or an earlier one; "" if none, as with a mask's -inf.

    earlier: what made those that it was given. given, made: `_worst` of each.
    """
    if made and (earlier or not given):
        return earlier or _beyond(operation)
    if (given, made) != (1, 2):
        return ""
    return (
        f"{operation} makes NaN of an infinite number, as log-probabilities have at -inf in padding and "
        "where masked; sum with cokl.policy.expectation, or put a finite number there first"
    )


def _beyond(operation: str) -> str:
    return f"{operation} is at or beyond the end of its range there; leave it out or clamp what goes into it"
