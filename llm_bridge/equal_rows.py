"""The squared gradient of a part of the loss, whichever trainer has the rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from torch import Tensor


def squared_gradient(rows: Iterable[tuple[Hashable, Tensor]]) -> float:
    """The squared norm of a gradient with respect to the tokens' log-probabilities, summed over rows and tokens.

    Rows of equal tokens have the same log-probabilities: what they weigh is summed before it is squared, so that a
    cached and a fresh row that cancel in the gradient cancel here. Rows that are equal up to some token only are
    counted apart.

    rows: a sequence, equal where prompt and response have the same tokens, and its gradient, (T,).
    """
    summed: dict[Hashable, Tensor] = {}
    for sequence, gradient in rows:
        summed[sequence] = summed[sequence] + gradient if sequence in summed else gradient
    return sum(float(gradient.square().sum()) for gradient in summed.values())
