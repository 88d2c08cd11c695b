"""The optimum of a regularizer that nobody analysed, found and not proved.

Assumption beyond the paper: the optimum has the reference's conditionals, as the built-in ones' have.
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import flint
import numpy as np
import torch
from scipy.optimize import brentq

from cokl.policy import CorrectSet, Policy
from cokl.regularizers import Regularizer
from cokl.support.errors import InputError
from theory.digits import rounded

SEARCHED = 700
"""How far the policy's log-odds are searched on either side of the reference's; exp of more overflows."""
_NOISE = 64 * np.finfo(np.float64).eps
"""Of a sum of gradients, relative to the sum of their sizes; less tells no sign."""


def searched(regularizer: Regularizer, q: Fraction, beta: Fraction) -> tuple[Fraction, str]:
    """The best Z of a regularizer that nobody analysed, along the reference's conditionals of a random reference, and
    how it was found. The figure is for orientation: nothing says that its optimum has those conditionals.

    The unknown is t, by which the policy's log-odds exceed the reference's. J's slope in t is Z (1 - Z) less beta times
    the gradient's sum over the correct, or minus that over the incorrect actions: the side of less mass keeps its
    digits where J itself, of the size of Z, has none. A maximum is where the slope's sign changes from + to -; of
    several the one with the largest J is taken, and the ends count where J rises to them.
    """
    odds = q / (1 - q)
    start = float(flint.arb(flint.fmpq(odds.numerator, odds.denominator)).log())
    if abs(start) > SEARCHED:
        known = "in (1e-304, 1 - 1e-304) for a regularizer whose optimum is searched in float64"
        raise InputError(f"q: expected a number {known}, got {rounded(q, 15)}")
    coefficient = float(Decimal(beta.numerator) / Decimal(beta.denominator))
    mask = torch.arange(8) < 3
    base = torch.from_numpy(np.random.default_rng(0).normal(size=8))
    alone = Policy(base, CorrectSet.from_mask(mask))
    base = base + (start - alone.log_mass + alone.log_incorrect_mass) * mask

    def policies(t: np.ndarray) -> tuple[Policy, Policy]:
        correct = CorrectSet.from_mask(mask.expand(len(t), -1))
        return Policy(base + torch.from_numpy(t)[:, None] * mask, correct), Policy(base.expand(len(t), -1), correct)

    def slopes(t: np.ndarray) -> np.ndarray:
        """(T,): J's, 0 where rounding hides the sign or the regularizer gives no number."""
        policy, reference = policies(t)
        gradient = regularizer.logit_gradient(policy, reference)
        fewer = policy.correct.mask == (policy.log_mass < policy.log_incorrect_mass)[:, None]
        side = gradient * fewer
        toward = coefficient * torch.where(policy.log_mass < policy.log_incorrect_mass, side.sum(-1), -side.sum(-1))
        slope = (policy.log_mass + policy.log_incorrect_mass).exp() - toward
        hidden = slope.abs() <= _NOISE * coefficient * side.abs().sum(-1)
        return slope.masked_fill(hidden | ~slope.isfinite(), 0).numpy()

    grid = np.union1d(np.linspace(-SEARCHED, SEARCHED, 2 * SEARCHED + 1), np.linspace(-40, 40, 801))
    policy, reference = policies(grid)
    gain = (policy.mass - coefficient * regularizer.value(policy, reference)).nan_to_num(nan=-np.inf).numpy()
    signs = np.sign(slopes(grid))
    sure = np.flatnonzero(signs).tolist()
    if not sure:
        raise InputError(f"{regularizer.name}: its gradient tells no sign in float64 at any Z, so no optimum is found")
    ends = [(-1, sure[0])] if signs[sure[0]] < 0 else []
    ends += [(sure[-1], len(grid))] if signs[sure[-1]] > 0 else []
    peaks = [(a, b) for a, b in itertools.pairwise(sure) if signs[a] > 0 > signs[b]]
    left, right = max(peaks + ends, key=lambda pair: gain[max(pair[0], 0) : pair[1] + 1].max())
    others = f", the best of {len(peaks + ends)} maxima" if len(peaks + ends) > 1 else ""
    if left < 0 or right == len(grid):
        at = grid[right if left < 0 else left]
        shown, limit = ("Z", 0) if left < 0 else ("1 - Z", 1)
        reached = _moved(q, at) if left < 0 else 1 - _moved(q, at)
        told = f"which still gains at {shown} = {rounded(reached, 2)}; its limit is given{others}"
        return Fraction(limit), f"beyond the search, {told}"
    if right - left > 2:  # more than a grid point at the root itself
        between = " and ".join(rounded(_moved(q, grid[place]), 2) for place in (left, right))
        return _moved(q, grid[(left + right) // 2]), f"beyond the search: rounding hides Z* between {between}{others}"
    best = brentq(lambda t: float(slopes(np.array([t]))[0]), grid[left], grid[right], xtol=1e-300, rtol=1e-14)
    return _moved(q, best), f"a search over Z at the reference's conditionals{others}"


def _moved(q: Fraction, t: float) -> Fraction:
    """The correctness whose log-odds are `t` above those of q."""
    grown = Fraction(math.expm1(t)) if abs(t) < 1 else Fraction(math.exp(t)) - 1
    return q * (1 + grown) / (1 + q * grown)
