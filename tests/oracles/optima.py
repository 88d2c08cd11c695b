"""Penalties at the best conditional policies, as functions of the total correctness z alone (Theorems 1 and 2).

q is the reference's correctness, `fraction` the correct actions over all actions, and `library` supplies `log`. Terms
that do not depend on z are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def bernoulli_kl(a: Any, b: Any, library: Any) -> Any:
    """D_KL(Bern(a) || Bern(b))."""
    return a * library.log(a / b) + (1 - a) * library.log((1 - a) / (1 - b))


def bernoulli_jensen_shannon(z: Any, q: Any, library: Any) -> Any:
    """Jensen-Shannon divergence of Bern(z) and Bern(q)."""
    return (bernoulli_kl(z, (z + q) / 2, library) + bernoulli_kl(q, (z + q) / 2, library)) / 2


ReducedPenalty = Callable[[Any, Any, Any, Any], Any]
REDUCED_PENALTIES: dict[str, ReducedPenalty] = {
    "entropy": lambda z, q, fraction, library: bernoulli_kl(z, fraction, library),
    "forward_kl": lambda z, q, fraction, library: bernoulli_kl(q, z, library),
    "reverse_kl": lambda z, q, fraction, library: bernoulli_kl(z, q, library),
    "jensen_shannon": lambda z, q, fraction, library: bernoulli_jensen_shannon(z, q, library),
    "cokl": lambda z, q, fraction, library: 0,
    "correct_forward_kl": lambda z, q, fraction, library: -library.log(z),
    "correct_reverse_kl": lambda z, q, fraction, library: 0,
    "cokl_without_term1": lambda z, q, fraction, library: library.log(z),
}
