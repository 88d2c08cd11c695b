"""Values and logit gradients of the regularizers, the floor and GRPO over all responses, in expectation.

A regularizer that says that it is log-linear (`Regularizer.log_linear`) costs two passes of `recursions`, however long
the responses are. Any other, one that was written yesterday among them, is taken over the list of all V^T responses as
actions, where that list is short enough.

Axes as in `recursions`; A = V^T responses.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from bandit.engine.sampled import expected_advantages
from bandit.engine.sequences import recursions
from bandit.engine.sequences.recursions import SequencePolicy, token_places
from cokl.decomposition import KLDecomposition
from cokl.floor import gate
from cokl.methods import Method
from cokl.policy import CorrectSet, Policy
from cokl.regularizers import Regularizer
from cokl.regularizers.log_linear import LogLinear
from cokl.support.errors import InputError

MOST_LISTED = 20_736
"""Responses that are still listed: 12^4."""

_FLOOR = LogLinear("reference_given_correct", policy=-1)


def is_exact(method: Method, steps: int, symbols: int) -> bool:
    """Whether the method's expectations can be had for responses of `steps` tokens over `symbols`."""
    regularizer = method.regularizer
    return regularizer is None or regularizer.log_linear() is not None or symbols**steps <= MOST_LISTED


def method_gradient(method: Method, policy: SequencePolicy, reference: SequencePolicy, betas: Tensor) -> Tensor:
    """(S, V, R, B): logit gradient of what the method adds to each prompt's loss, coefficients (R,) included."""
    if method.regularizer is None:
        return torch.zeros_like(policy.probs)
    total = betas[:, None] * regularizer_gradient(method.regularizer, policy, reference)
    if method.floor:
        # g_B sum over correct y of pi_ref(y) log pi(y) (Eq. 20), with the gate of Eq. 19
        scale = method.floor * gate(reference.mass, policy.mass) * reference.mass
        total += scale * recursions.gradient(_FLOOR, policy, reference)
    return total


def regularizer_value(regularizer: Regularizer, policy: SequencePolicy, reference: SequencePolicy) -> Tensor:
    """(R, B): in nats. Raises InputError for too many responses to list."""
    form = regularizer.log_linear()
    if form is not None:
        return recursions.value(form, policy, reference)
    return regularizer.value(_listed(policy)[0], _listed(reference)[0])


def regularizer_gradient(regularizer: Regularizer, policy: SequencePolicy, reference: SequencePolicy) -> Tensor:
    """(S, V, R, B): gradient of its value with respect to the policy's logits. Raises as `regularizer_value`."""
    form = regularizer.log_linear()
    if form is not None:
        return recursions.gradient(form, policy, reference)
    listed, positions = _listed(policy)
    of_responses = regularizer.logit_gradient(listed, _listed(reference)[0])
    weights = torch.zeros_like(policy.probs)
    for of_step in positions.unbind(-1):
        weights.flatten(0, 1).index_add_(0, of_step, of_responses.movedim(-1, 0))
    return policy.through_softmax(weights)


def grpo_gradient(policy: SequencePolicy, group_size: int) -> Tensor:
    """(S, V, R, B): logit gradient of each prompt's expected -J_GRPO (Eqs. 1-4) over groups that the policy draws.

    On-policy it is -(A+ - A-) grad Z / T, with the mean advantages A+ and A- of correct and incorrect responses; J_GRPO
    is a mean over tokens.
    """
    correct, incorrect = expected_advantages(policy.log_mass, policy.log_incorrect_mass, group_size)
    scale = (incorrect - correct) * policy.mass / len(policy.correct.probs)
    return scale * policy.log_mass_logit_gradient()


def _listed(policy: SequencePolicy) -> tuple[Policy, Tensor]:
    """The policy over all responses as actions, (R, B, A), and the positions (A, T) of their tokens among S * V."""
    steps, symbols = len(policy.correct.probs), policy.probs.shape[1]
    if symbols**steps > MOST_LISTED:
        raise InputError(
            f"length: a regularizer that is not log-linear needs a list of all responses, at most {MOST_LISTED}, "
            f"and there are {symbols}^{steps}; train it in sampled mode or on shorter responses"
        )
    tokens, positions = _responses(steps, symbols)
    table = policy.log_probs.flatten(0, 1)
    log_probs = torch.stack([table[of_step] for of_step in positions.unbind(-1)]).sum(0).movedim(0, -1)
    mask = policy.automata.accept(tokens.expand(len(policy.automata.transitions), -1, -1))
    return Policy(log_probs, CorrectSet.from_mask(mask)), positions


@functools.cache
def _responses(steps: int, symbols: int) -> tuple[Tensor, Tensor]:
    """All responses (A, T), and the positions of their tokens in a table (S, V), (A, T)."""
    tokens = torch.cartesian_prod(*[torch.arange(symbols)] * steps).view(-1, steps)
    return tokens, token_places(tokens, symbols)


def drifts(source: SequencePolicy, target: SequencePolicy) -> KLDecomposition:
    """D_KL(source || target) split into mass, correct and incorrect drift (Eq. 7), (R, B) each."""
    ratio = _log_ratio(source.log_mass, target.log_mass)
    # From the incorrect responses themselves: 1 - Z is finite in logs where Z rounds to 1.
    incorrect_ratio = _log_ratio(source.incorrect.log_mass, target.incorrect.log_mass)
    of_mass = source.mass * ratio + (1 - source.mass) * incorrect_ratio
    costs = source.log_probs - target.log_probs
    correct = source.mass * (source.correct.expectation(costs) - ratio)
    incorrect = (1 - source.mass) * (source.incorrect.expectation(costs) - incorrect_ratio)
    return KLDecomposition(of_mass, correct, incorrect)


def _log_ratio(source: Tensor, target: Tensor) -> Tensor:
    """`source` - `target`, zero where the source has nothing."""
    return torch.where(source > -torch.inf, source - target, 0)
