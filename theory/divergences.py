"""f-divergence regularizers, one general statement for all: where Z - beta D_f(pi || ref) is largest.

Let D_f(pi || ref) = sum ref f(pi / ref) with f convex and f(1) = 0, and let ref > 0 everywhere.

Conditionals. By Jensen's inequality on each of the two response sets, D_f(pi || ref) >= d_f(z) := q f(z / q) +
(1 - q) f((1 - z) / (1 - q)) with equality if pi+ = ref+ and pi- = ref- (only then if f is strictly convex). So the
reference's conditionals are optimal for every z, and what is left is max over z in [0, 1] of z - beta d_f(z), concave.

Correctness. Its derivative is 1 - beta L(z), L(z) = f'(z / q) - f'((1 - z) / (1 - q)), nondecreasing in z. So:
(a) Z* is the root of L(z) = 1 / beta where there is one;
(b) Z* >= q, and Z* = q exactly if f has a kink at 1 and beta (f'(1+) - f'(1-)) >= 1; if f' is continuous at 1, Z* > q;
(c) Z* < 1, a correctness gap, exactly if beta > 1 / L(1-), L(1-) = f'(1 / q) - f'(0+). The gap exists for every beta >
    0 exactly if f'(0+) = -inf: the penalty on abandoning the incorrect responses must have infinite slope.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mpmath import mp, mpf


@dataclass(frozen=True)
class FDivergence:
    """A generator f with f(1) = 0, its derivative, and the derivative's right limit at 0 (None for -inf).

    generator, slope: take (num, t). convex_program: its name in `theory.provers.convex.PENALTIES`, or None.
    """

    name: str
    generator: Callable[[Any, Any], Any]
    slope: Callable[[Any, Any], Any]
    slope_at_zero: float | None
    convex_program: str | None = None

    def balance(self, num, z: Any, q: Any) -> Any:
        """L(z) = f'(z / q) - f'((1 - z) / (1 - q)); 1 / beta at an interior optimum."""
        return self.slope(num, z / q) - self.slope(num, (1 - z) / (1 - q))

    def gap_threshold(self, num, q: Any) -> Any:
        """The coefficient above which Z* < 1, 1 / (f'(1 / q) - f'(0+)); 0 if there always is a gap."""
        return mpf(0) if self.slope_at_zero is None else 1 / (self.slope(num, 1 / q) - self.slope_at_zero)

    def optimum(self, q: mpf, beta: mpf) -> mpf:
        """Z* at the working precision of mpmath, by bisection on the logit of (z - q) / (1 - q)."""
        if beta <= self.gap_threshold(mp, q):
            return mpf(1)
        low, high = mpf(-3000), mpf(3000)
        while high - low > mpf(10) ** (2 - mp.dps):
            middle = (low + high) / 2
            with mp.extradps(1300 if middle > 60 else 0):
                excess = (1 - q) / (1 + mp.exp(-middle))
                rising = self.balance(mp, q + excess, q) * beta < 1
            low, high = (middle, high) if rising else (low, middle)
        return q + (1 - q) / (1 + mp.exp(-low))


def alpha_divergence(alpha: float) -> FDivergence:
    """f(t) = (t^alpha - alpha t + alpha - 1) / (alpha (alpha - 1)), alpha not 0 or 1; f'(0+) > -inf iff alpha > 1."""
    return FDivergence(
        f"alpha = {alpha:g}",
        lambda num, t: (t**alpha - alpha * t + alpha - 1) / (alpha * (alpha - 1)),
        lambda num, t: (t ** (alpha - 1) - 1) / (alpha - 1),
        None if alpha < 1 else -1 / (alpha - 1),
    )


F_DIVERGENCES = [
    FDivergence("forward KL", lambda num, t: -num.log(t), lambda num, t: -1 / t, None, "forward_kl"),
    FDivergence("reverse KL", lambda num, t: t * num.log(t), lambda num, t: num.log(t) + 1, None, "reverse_kl"),
    FDivergence(
        "Jensen-Shannon",
        lambda num, t: (t * num.log(t) - (1 + t) * num.log((1 + t) / 2)) / 2,
        lambda num, t: num.log(2 * t / (1 + t)) / 2,
        None,
        "jensen_shannon",
    ),
    FDivergence(
        "squared Hellinger",
        lambda num, t: (num.sqrt(t) - 1) ** 2,
        lambda num, t: 1 - 1 / num.sqrt(t),
        None,
        "squared_hellinger",
    ),
    FDivergence("Pearson chi^2", lambda num, t: (t - 1) ** 2, lambda num, t: 2 * (t - 1), -2.0, "pearson_chi_squared"),
    FDivergence("Neyman chi^2", lambda num, t: 1 / t - 1, lambda num, t: -1 / t**2, None, "neyman_chi_squared"),
    alpha_divergence(0.5),
    alpha_divergence(3),
]
"""Differentiable generators; total variation, whose f has a kink at 1, is the counterexample to (b)'s strict form."""
