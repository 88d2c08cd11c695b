"""Finite groups without sampling: expectations over every reference group and every rollout group."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from cokl.groups import ResponseGroups, SurrogateConfig
from cokl.policy import CorrectSet, Policy
from cokl.regularizers import Regularizer
from theory.definitions import require_both_kinds


@dataclass(frozen=True)
class Bandit:
    """A tabular problem over A actions: logits (A,) of the reference, the current and the behaviour policy.

    Raises InputError for a mask `correct` (A,) without a correct or without an incorrect action.
    """

    reference: Tensor
    current: Tensor
    behavior: Tensor
    correct: Tensor

    def __post_init__(self) -> None:
        require_both_kinds(self.correct.numpy())

    def policy(self, logits: Tensor) -> Policy:
        """The softmax of logits (A,), with this problem's correct actions."""
        return Policy(logits, CorrectSet.from_mask(self.correct))

    def responses(self, actions: Tensor, log_probs: Tensor | None = None) -> ResponseGroups:
        """Groups of actions (M, G) as a method sees them. log_probs: (A,), the current policy's, to differentiate."""
        current = self.current.log_softmax(-1) if log_probs is None else log_probs
        old, base = (logits.log_softmax(-1)[actions] for logits in (self.behavior, self.reference))
        return ResponseGroups(current[actions], self.correct[actions].double(), old, base)


def random_bandit(seed: int, actions: int, correct: int, on_policy: bool = True) -> Bandit:
    """Standard normal logits (A,) of `actions` actions, the first `correct` of which are correct.

    on_policy: whether the behaviour policy is the current one.
    """
    generator = torch.Generator().manual_seed(seed)
    reference, current, behavior = torch.randn(3, actions, generator=generator, dtype=torch.float64)
    mask = torch.arange(actions) < correct
    return Bandit(reference, current, current if on_policy else behavior, mask)


def all_groups(logits: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """All A^G groups of `size` draws from softmax(logits): actions (A^G, G) and probabilities (A^G,)."""
    actions = torch.cartesian_prod(*[torch.arange(len(logits))] * size).reshape(-1, size)
    return actions, logits.log_softmax(-1)[actions].sum(-1).exp()


def expected_surrogate_gradient(
    regularizer: Regularizer, bandit: Bandit, size: int, filtered: bool = True, config: SurrogateConfig | None = None
) -> Tensor:
    """(A,): expectation of the sampled surrogate's logit gradient over all A^G x A^G pairs of groups.

    filtered: condition the reference group on holding a correct response, as the buffer D+ does. The weights come from
    the regularizer's own `surrogate_weights`; the gradient from autograd through the weighted log-likelihoods.
    """
    reference_actions, reference_probs = all_groups(bandit.reference, size)
    rollout_actions, rollout_probs = all_groups(bandit.behavior, size)
    if filtered:
        held = bandit.correct[reference_actions].any(-1)
        reference_actions, reference_probs = reference_actions[held], reference_probs[held]
        reference_probs = reference_probs / reference_probs.sum()
    count = len(rollout_actions)
    rows = torch.arange(len(reference_actions) * count)
    probs = reference_probs[rows // count] * rollout_probs[rows % count]
    logits = bandit.current.clone().requires_grad_()
    log_probs = logits.log_softmax(-1)
    reference = bandit.responses(reference_actions[rows // count], log_probs)
    rollout = bandit.responses(rollout_actions[rows % count], log_probs)
    weights = regularizer.surrogate_weights(reference, rollout, config or SurrogateConfig())
    loss = logits.sum() * 0
    for weight, stream in zip(weights, (reference, rollout), strict=True):
        if weight is not None:
            loss = loss + (probs[:, None] * weight.detach() * stream.log_probs).sum()
    return torch.autograd.grad(loss, logits)[0]


def expected_rollout_weights(
    current: np.ndarray, behavior: np.ndarray, size: int, epsilon_is: float | None
) -> np.ndarray:
    """(K,): expected total weight gamma (Eq. 16) that a behaviour-policy group gives to each of the K correct actions.

    current, behavior: (K,) probabilities of the correct actions under the current and the behaviour policy.
    epsilon_is: clipping range; None for unclipped ratios. Exact: groups are enumerated as counts, in which all
    incorrect actions are one category, so that a group has C(G + K, K) outcomes instead of A^G.
    """
    ratios = current / behavior
    if epsilon_is is not None:
        ratios = ratios.clip(1 - epsilon_is, 1 + epsilon_is)
    ends = size + len(current)
    bars = np.array(list(combinations(range(ends), len(current))))  # between the counts of each category
    counts = np.diff(bars, prepend=-1, append=ends) - 1
    shares = np.append(behavior, 1 - behavior.sum())
    factorials = np.array([float(torch.lgamma(torch.tensor(n + 1.0, dtype=torch.float64))) for n in range(size + 1)])
    log_probs = factorials[size] - factorials[counts].sum(-1) + counts @ np.log(shares)
    weighted = counts[:, :-1] * ratios
    totals = weighted.sum(-1, keepdims=True)
    weights = np.divide(weighted, totals, out=np.zeros_like(weighted), where=totals > 0)
    return np.exp(log_probs) @ weights
