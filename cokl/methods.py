"""A method of the task-shift experiment: what is added to the RL objective, with all coefficients (Eqs. 18 and 20).

Every method is one object here: the simulator's sampled mode and the LLM trainers take it and name none. The
simulator's exact mode in float32 on a CPU does name some: `bandit.engine.fused` computes the gradients of eight
regularizers a second time, for speed. A test holds them to those of `Method.logit_gradient` in float64: equal within
2e-6 times one plus the coefficient times the row's largest log-ratio. A regularizer of one's own takes this module's
path, and so do all methods that are trained beside it.

Assumption beyond the paper: a method that weights only one stream of responses draws as many groups per update as CoKL
does in both of its streams together (E.3 says so of the baselines, not of the ablations).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import get_args

import torch
from torch import Tensor

from cokl import regularizers
from cokl.floor import floor_logit_gradient, sampled_floor_weights
from cokl.groups import RegularizationRows, ResponseGroups, SurrogateConfig, SurrogateWeights, required
from cokl.names import CALLED, canonical, listed
from cokl.policy import Policy
from cokl.regularizers.base import Regularizer, Stream
from cokl.support.errors import InputError, did_you_mean

UNREGULARIZED = ("none", "grpo")
"""The two names of RL without a regularizer: the simulator's and the tables'."""


@dataclass(frozen=True)
class Method:
    """What is added to the RL loss: beta * regularizer + floor * L_floor (Eqs. 18 and 20).

    Attributes:
        name: the name that `get` takes.
        label: the name in figures and tables.
        regularizer: None for unregularized RL.
        floor: lambda_floor of Eq. 20, >= 0; it does not scale with beta.

    Examples:
        >>> get("cokl_floor").streams(), get("cokl_floor").floor
        (('reference', 'rollout'), 1.0)
    """

    name: str
    label: str
    regularizer: Regularizer | None
    floor: float = 0.0

    @property
    def filtered(self) -> bool:
        """Whether its buffer leaves out prompts without a correct reference response (E.3)."""
        return self.regularizer is not None and (self.regularizer.conditional or self.floor > 0)

    def streams(self) -> tuple[Stream, ...]:
        """The streams of responses that it uses: "reference", the cached, and "rollout", the fresh, in this order.

        The floor uses both, since its gate compares them.

        Returns:
            Their names; () for unregularized RL.

        Raises:
            InputError: a regularizer without a sampled surrogate.
        """
        if self.regularizer is None:
            return ()
        if not self.regularizer.streams:
            raise InputError(
                f"{self.name}: this regularizer has no sampled surrogate; define surrogate_weights and declare streams"
            )
        return get_args(Stream) if self.floor else self.regularizer.streams

    @property
    def blind_to_wrong_cached(self) -> bool:
        """Whether wrong cached responses never affect its sampled surrogate.

        They do in the floor, whose gate counts them, and in a full forward KL, which weights them.
        """
        weighted = self.regularizer is not None and "reference" in self.regularizer.streams
        return not self.floor and (not weighted or self.filtered)

    @property
    def compares_with_reference(self) -> bool:
        """Whether its sampled surrogate needs the rollouts' log-likelihoods under the reference."""
        return self.regularizer is not None and self.regularizer.compares_with_reference

    def weights(
        self,
        reference: ResponseGroups | None,
        rollout: ResponseGroups | None,
        beta: float | Tensor,
        config: SurrogateConfig,
    ) -> SurrogateWeights:
        """Signed weights of both streams, coefficients included, for `cokl.groups.surrogate_loss` (Eqs. 12, 17, 20).

        Args:
            reference: (N, G_ref), cached groups; None where the method does not weight them.
            rollout: (N, G), fresh groups of the same prompts; None likewise. The floor needs both streams.
            beta: the coefficient, >= 0: a number, or (N, 1), one for each group.
            config: the choices that the paper leaves open.

        Returns:
            (N, G) for each stream, None if unused. They multiply log-likelihoods in nats. Nothing is averaged over
            groups except the floor's gate.

        Raises:
            InputError: a regularizer without a sampled surrogate, or whose weights are not one finite number for each
                response of the streams that it declares.
            ValueError: a stream that is needed is missing.

        Examples:
            >>> cached = ResponseGroups(torch.tensor([[-1.0, -2.0]]), torch.tensor([[1, 0]]))
            >>> get("correct_forward_kl").weights(cached, None, beta=0.5, config=SurrogateConfig()).reference
            tensor([[-0.5000, -0.0000]])
        """
        if self.regularizer is None:
            return SurrogateWeights(None, None)
        self.streams()  # raises where there is no surrogate
        weights = _checked(
            self.regularizer, self.regularizer.surrogate_weights(reference, rollout, config), reference, rollout
        )
        cached, fresh = (None if weight is None else beta * weight for weight in weights)
        if self.floor:
            pull = sampled_floor_weights(required(reference, "reference"), required(rollout, "rollout"))
            cached = self.floor * pull if cached is None else cached + self.floor * pull
        return SurrogateWeights(cached, fresh)

    def row_weights(self, rows: RegularizationRows, beta: float, config: SurrogateConfig) -> Tensor:
        """The weights of a trainer's rows, which minimises `(weights * log_probs).sum()` (Eqs. 12, 17 and 20).

        Args:
            rows: the trainer's R rows.
            beta: the coefficient, >= 0.
            config: the choices that the paper leaves open.

        Returns:
            (R,). The mean over groups is included. Rows outside `rows.index` have weight 0.

        Raises:
            InputError: a regularizer without a sampled surrogate, or a coefficient whose weights overflow.
            ValueError: a stream that the method weights has no rows.

        Examples:
            >>> index = RowIndex(reference=torch.tensor([[0, 1]]), rollout=torch.tensor([[2, 3]]))
            >>> rows = RegularizationRows(index, -torch.ones(5), torch.tensor([1, 0, 1, 1, 0]))
            >>> get("cokl").row_weights(rows, beta=1.0, config=SurrogateConfig())
            tensor([-1.0000, -0.0000,  0.5000,  0.5000,  0.0000])
        """
        weights = torch.zeros_like(rows.log_probs)
        if len(rows.index.reference):
            compared = rows.reference_log_probs if self.compares_with_reference else None
            reference = rows.groups(rows.index.reference)
            rollout = rows.groups(rows.index.rollout, rows.behavior_log_probs, compared)
            for table, weight in zip(rows.index, self.weights(reference, rollout, beta, config), strict=True):
                if weight is not None:
                    weights[table] = weight / len(weight) / (1 if rows.tokens is None else rows.tokens[table])
        if not bool(weights.isfinite().all()):
            raise InputError(f"beta: expected a coefficient whose weights fit in {weights.dtype}, got {beta:g}")
        return weights

    def logit_gradient(self, policy: Policy, reference: Policy, beta: float | Tensor) -> Tensor:
        """Gradient of what is added to the loss, for each context with respect to its own logits (Eqs. 18 and 20).

        Args:
            policy: contexts (..., B) over A actions.
            reference: the same contexts and correct sets.
            beta: the coefficient, >= 0: a number, or a tensor that broadcasts against (..., B, A).

        Returns:
            (..., B, A), in nats. Nothing is averaged over B except the floor's gate.

        Raises:
            InputError: a regularizer whose `value` is not one number per context.

        Examples:
            >>> correct = CorrectSet.from_mask(torch.tensor([[True, True, False]]))
            >>> policy, reference = Policy(torch.zeros(1, 3), correct), Policy(torch.tensor([[2.0, 1.0, 0.0]]), correct)
            >>> get("cokl").logit_gradient(policy, reference, beta=0.5)
            tensor([[-0.1155,  0.1155,  0.0000]])
        """
        if self.regularizer is None:
            return torch.zeros_like(policy.logits)
        gradient = beta * self.regularizer.logit_gradient(policy, reference)
        if self.floor:
            gradient = gradient + self.floor * floor_logit_gradient(policy, reference)
        return gradient


def _checked(
    regularizer: Regularizer, weights: object, reference: ResponseGroups | None, rollout: ResponseGroups | None
) -> SurrogateWeights:
    """What the user's own class returned. Another shape would broadcast, and NaN would reach every parameter."""
    gave = f"{regularizer.name}: surrogate_weights gave"
    if not isinstance(weights, tuple) or len(weights) != len(SurrogateWeights._fields):
        raise InputError(f"{gave} {type(weights).__name__}, expected SurrogateWeights(reference, rollout)")
    for stream, weight, groups in zip(SurrogateWeights._fields, weights, (reference, rollout), strict=True):
        if weight is None:
            continue
        if stream not in regularizer.streams:
            raise InputError(f"{gave} {stream} weights, and streams declares only {', '.join(regularizer.streams)}")
        shape = required(groups, stream).log_probs.shape
        if not isinstance(weight, Tensor) or weight.shape != shape:
            kind = f"shape {tuple(weight.shape)}" if isinstance(weight, Tensor) else f"type {type(weight).__name__}"
            raise InputError(f"{gave} {stream} weights of {kind}, expected {tuple(shape)}, one for each response")
        # the sum first, since `isfinite` takes as long as the weights themselves; a sum may also overflow
        if not math.isfinite(float(weight.sum())) and not bool(weight.isfinite().all()):
            rewards = required(groups, stream).rewards[~weight.isfinite().all(-1)]
            unsolved = " for a group without a correct response; cokl.groups.self_normalised gives it zeros"
            raise InputError(f"{gave} {stream} weights that are not finite{'' if (rewards > 0).any() else unsolved}")
    return SurrogateWeights(*weights)


def get(name: str) -> Method:
    """The method called `name`.

    Args:
        name: "none" (or "grpo"), a regularizer's name, or that name with "_floor" appended; or what tables call it, as
            `cokl.names.canonical` reads it.

    Returns:
        The method with its name, label and coefficients.

    Raises:
        InputError: an unknown name, with the nearest and a list of the known ones.

    Examples:
        >>> get("cokl_floor").label
        'CoKL + floor'
    """
    given, name = name, canonical(name)
    if name in UNREGULARIZED:
        return Method(name, "GRPO w/o KL", None)
    if name in regularizers.names():
        regularizer = regularizers.get(name)
        return Method(name, regularizer.label, regularizer)
    base = name.removesuffix("_floor")
    if base != name and base in regularizers.names():
        regularizer = regularizers.get(base)
        return Method(name, f"{regularizer.label} + floor", regularizer, floor=1.0)
    known = ("none", *regularizers.names(), "cokl_floor")
    raise InputError(
        f"unknown method {given!r}{did_you_mean(given, [*known, *CALLED])}; known: {listed(known)}; a class in a "
        "file of your own is known once its package is installed (docs/how-to/regularizer.md)"
    )


def label(name: str, own: Mapping[str, str] = MappingProxyType({})) -> str:
    """The label of a method in tables and figures.

    Args:
        name: a method's name, or anything else that a column of methods holds.
        own: labels of one experiment only, such as that of its base model.

    Returns:
        The label; an unknown name is returned unchanged.

    Examples:
        >>> label("cokl_without_term1"), label("mine")
        ('CoKL w/o term 1', 'mine')
    """
    if name in own:
        return own[name]
    try:
        return get(name).label
    except InputError:
        return name
