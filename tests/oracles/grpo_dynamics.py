"""The success probability of GRPO with a reverse-KL penalty (Mroueh, arXiv 2503.06639), in closed form, as floats.

Each round maximises E_{pi_old}[(pi / pi_old) * A] - beta * KL(pi || pi_ref) with whitened advantages of infinite
groups: A = sqrt((1 - p) / p) for a correct response and -sqrt(p / (1 - p)) for an incorrect one.
"""

from __future__ import annotations

import math


def next_success(p: float, reference: float, beta: float) -> float:
    """h(p): success probability after a round that starts at p, in (0, 1); `reference` is the reference's."""
    log_odds = math.log(reference) - math.log1p(-reference) + 1 / (beta * math.sqrt(p * (1 - p)))
    return 1 / (1 + math.exp(-log_odds))


def fixed_point(reference: float, beta: float) -> float:
    """The smallest p >= reference with h(p) = p, by bisection of h(p) - p on its first change of sign."""
    low = reference
    high = low
    while next_success(high, reference, beta) > high:
        low, high = high, high + 1e-3 * (1 - high)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if next_success(middle, reference, beta) > middle else (low, middle)
    return (low + high) / 2
