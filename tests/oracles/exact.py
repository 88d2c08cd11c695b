"""The paper's definitions over one context's actions, as loops over Python numbers.

`library` supplies `exp` and `log`: `math` where float64 probabilities are ordinary numbers, `PRECISE` where they would
underflow or where the last digits matter. `correct` holds one truth value per action; `policy` and `reference` hold one
probability per action. Conventions: 0 log 0 = 0, and the conditional of a probability-zero event has no members.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath

PRECISE = mpmath.MPContext()
PRECISE.dps = 60

Numbers = Sequence[Any]
Flags = Sequence[bool]


def softmax(logits: Numbers, library: Any) -> list[Any]:
    """Probabilities of the actions."""
    weights = [library.exp(logit) for logit in logits]
    total = sum(weights)
    return [weight / total for weight in weights]


def mass(policy: Numbers, correct: Flags) -> Any:
    """Z (Eq. 5)."""
    total = 0
    for probability, is_correct in zip(policy, correct, strict=True):
        total += probability if is_correct else 0
    return total


def opposite(correct: Flags) -> list[bool]:
    """The incorrect actions."""
    return [not is_correct for is_correct in correct]


def conditioned(policy: Numbers, correct: Flags) -> list[Any]:
    """pi+ (Eq. 6); with `opposite(correct)` it is pi-."""
    total = mass(policy, correct)
    members = []
    for probability, is_correct in zip(policy, correct, strict=True):
        members.append(probability / total if is_correct and total > 0 else 0)
    return members


def kl(source: Numbers, target: Numbers, library: Any) -> Any:
    """D_KL(source || target) in nats."""
    total = 0
    for p, q in zip(source, target, strict=True):
        if p > 0:
            total += p * (library.log(p) - library.log(q)) if q > 0 else library.inf
    return total


def entropy(policy: Numbers, reference: Numbers, correct: Flags, library: Any) -> Any:
    """Negative entropy."""
    total = 0
    for p in policy:
        total += p * library.log(p) if p > 0 else 0
    return total


def forward_kl(policy: Numbers, reference: Numbers, correct: Flags, library: Any) -> Any:
    """D_KL(pi_ref || pi)."""
    return kl(reference, policy, library)


def reverse_kl(policy: Numbers, reference: Numbers, correct: Flags, library: Any) -> Any:
    """D_KL(pi || pi_ref)."""
    return kl(policy, reference, library)


def jensen_shannon(policy: Numbers, reference: Numbers, correct: Flags, library: Any) -> Any:
    """Mean KL of the two policies to their mixture."""
    mixture = [(p + q) / 2 for p, q in zip(policy, reference, strict=True)]
    return (kl(policy, mixture, library) + kl(reference, mixture, library)) / 2


def cokl(policy: Numbers, reference: Numbers, correct: Flags, library: Any) -> Any:
    """D_KL(pi_ref+ || pi+) (Eq. 8)."""
    return kl(conditioned(reference, correct), conditioned(policy, correct), library)


def correct_forward_kl(policy: Numbers, reference: Numbers, correct: Flags, library: Any) -> Any:
    """D_KL(pi_ref+ || pi) (below Eq. 9)."""
    return kl(conditioned(reference, correct), policy, library)


def correct_reverse_kl(policy: Numbers, reference: Numbers, correct: Flags, library: Any) -> Any:
    """D_KL(pi+ || pi_ref)."""
    return kl(conditioned(policy, correct), reference, library)


def cokl_without_term1(policy: Numbers, reference: Numbers, correct: Flags, library: Any) -> Any:
    """log Z, zero by convention without a correct action."""
    return library.log(mass(policy, correct)) if any(correct) else 0


Definition = Callable[[Numbers, Numbers, Flags, Any], Any]
VALUES: dict[str, Definition] = {
    definition.__name__: definition
    for definition in (
        entropy,
        forward_kl,
        reverse_kl,
        jensen_shannon,
        cokl,
        correct_forward_kl,
        correct_reverse_kl,
        cokl_without_term1,
    )
}


def finite_difference(
    definition: Definition, logits: Numbers, reference_logits: Numbers, correct: Flags, step: str = "1e-20"
) -> list[Any]:
    """Central differences of `definition` with respect to each logit, with far more digits than float64 holds."""
    reference = softmax(reference_logits, PRECISE)
    gradient = []
    for action in range(len(logits)):
        ends = []
        for offset in (PRECISE.mpf(step), -PRECISE.mpf(step)):
            moved = [logit + offset if index == action else logit for index, logit in enumerate(logits)]
            ends.append(definition(softmax(moved, PRECISE), reference, correct, PRECISE))
        gradient.append((ends[0] - ends[1]) / (2 * PRECISE.mpf(step)))
    return gradient


def decomposed_kl(source: Numbers, target: Numbers, correct: Flags, library: Any) -> tuple[Any, Any, Any]:
    """The three summands of Eq. 7: Bernoulli, correct-conditional, incorrect-conditional."""
    incorrect = opposite(correct)
    bernoulli = [[mass(policy, correct), mass(policy, incorrect)] for policy in (source, target)]
    return (
        kl(bernoulli[0], bernoulli[1], library),
        mass(source, correct) * kl(conditioned(source, correct), conditioned(target, correct), library),
        mass(source, incorrect) * kl(conditioned(source, incorrect), conditioned(target, incorrect), library),
    )


def coverage(policy: Numbers, correct: Flags, k: int) -> Any:
    """Expected share of the correct actions among `k` independent draws."""
    total = 0
    for probability, is_correct in zip(policy, correct, strict=True):
        total += 1 - (1 - probability) ** k if is_correct else 0
    return total / sum(correct)


def floor(
    policies: Sequence[Numbers], references: Sequence[Numbers], corrects: Sequence[Flags], library: Any
) -> list[Any]:
    """Expectation of Eq. 20 for each context of a batch, with the gate of Eq. 19."""
    gap = 0
    for policy, reference, correct in zip(policies, references, corrects, strict=True):
        gap += (mass(reference, correct) - mass(policy, correct)) / len(policies)
    values = []
    for policy, reference, correct in zip(policies, references, corrects, strict=True):
        attraction = 0
        for p, q, is_correct in zip(policy, reference, correct, strict=True):
            attraction += q * library.log(p) if is_correct else 0
        values.append(-max(gap, 0) * attraction)
    return values
