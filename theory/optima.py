"""The population optimum of any registered regularizer to any number of digits, with what certifies it.

Every regularizer that the toolkit registers reduces to one dimension: for fixed Z the conditionals have a known optimum
(the reference's, or uniform for entropy), and what is left is a function of Z whose slope is written here from its
definition. A root is certified by a sign change of the slope between two numbers that differ beyond the last digit,
evaluated with interval arithmetic, and by the slope's strict monotonicity (Appendix D, and `theory.claims`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import flint
import mpmath
import numpy as np
import torch
from mpmath import mp, mpf
from scipy.optimize import minimize_scalar

from cokl import regularizers
from cokl.policy import CorrectSet, Policy
from cokl.support.errors import InputError
from theory.provers.arithmetic import Interval, Intervals

Slope = Callable[[Any, Any, Any, Any, Any], Any]


@dataclass(frozen=True)
class Root:
    """An interior optimum: slope(num, z, y, q, beta) with y = 1 - z, strictly decreasing in z, and a starting guess."""

    slope: Slope
    why: str


@dataclass(frozen=True)
class Boundary:
    """An optimum at Z = 0 or 1 whatever q and beta are."""

    mass: int
    why: str


def _forward_slope(num, z, y, q, beta):
    return 1 - beta * (z - q) / (z * y)


def _reverse_slope(num, z, y, q, beta):
    return 1 - beta * (num.log(z / y) - num.log(q / (1 - q)))


def _jensen_shannon_slope(num, z, y, q, beta):
    return 1 - beta * (num.log(2 * z / (z + q)) - num.log(2 * y / (y + 1 - q))) / 2


_REPLAY = "J = Z - beta KL(ref+ || pi+) + beta log Z <= 1 with equality only at Z = 1, pi+ = ref+"
PROBLEMS: dict[str, Root | Boundary] = {
    "forward_kl": Root(_forward_slope, "Theorem 2: strictly concave in Z at the reference's conditionals"),
    "reverse_kl": Root(_reverse_slope, "Theorem 2: strictly concave in Z at the reference's conditionals"),
    "jensen_shannon": Root(
        _jensen_shannon_slope, "f-divergence: strictly concave in Z at the reference's conditionals"
    ),
    "entropy": Root(_reverse_slope, "reverse KL to the uniform policy, whose correctness takes the place of q"),
    "cokl": Boundary(1, "Theorem 1: J <= Z <= 1 with equality only at Z = 1, pi+ = ref+"),
    "correct_forward_kl": Boundary(1, _REPLAY),
    "cokl_without_term2": Boundary(1, _REPLAY + ", up to the entropy of ref+"),
    "correct_reverse_kl": Boundary(1, "J = Z - beta KL(pi+ || ref+) + beta log q is largest only at Z = 1, pi+ = ref+"),
    "cokl_without_term1": Boundary(0, "no maximum: Z - beta log Z grows without bound as Z -> 0"),
}


@dataclass(frozen=True)
class PopulationOptimum:
    """What `cokl theory optimum` reports. Numbers are decimal strings with the requested number of digits.

    mass: Z*. gap: 1 - Z*. above_reference: Z* - q. certified: False where nothing but a search supports the figure.
    """

    method: str
    q: str
    beta: str
    mass: str
    gap: str
    above_reference: str
    certified: bool
    certificate: str

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def population_optimum(
    method: str, q: str | float, beta: str | float, digits: int = 15, correct_fraction: str | float | None = None
) -> PopulationOptimum:
    """Z* of a registered regularizer. q, beta and correct_fraction may be decimal strings, which are taken exactly.

    Raises InputError for an unknown method, q or correct_fraction outside (0, 1), beta <= 0, digits outside [1, 1000],
    and for entropy without a correct_fraction.
    """
    regularizer = regularizers.get(method)
    if not 1 <= digits <= 1000:
        raise InputError(f"digits: expected between 1 and 1000, got {digits}")
    exact_q, exact_beta = _number("q", q, 0, 1), _number("beta", beta, 0, None)
    fraction = None if correct_fraction is None else _number("correct_fraction", correct_fraction, 0, 1)
    problem = PROBLEMS.get(method)
    if problem is None:
        return _searched(regularizer, exact_q, exact_beta, digits)
    if isinstance(problem, Boundary):
        with mp.workdps(digits + 10):
            mass = mpf(problem.mass)
            return _report(method, exact_q, exact_beta, mass, 1 - mass, digits, problem.mass == 1, problem.why)
    if method == "entropy" and fraction is None:
        raise InputError("correct_fraction: the entropy optimum needs correct actions over all actions, in (0, 1)")
    anchor = exact_q if fraction is None or method != "entropy" else fraction
    low, high = _bracket(problem.slope, anchor, exact_beta, digits)
    why = (
        f"the slope changes sign from + to - within {mpmath.nstr(high - low, 2)} of logit Z* = {mpmath.nstr(low, 10)}, "
        f"in interval arithmetic; {problem.why}"
    )
    with mp.workdps(_working_digits(low, digits)):
        mass, gap = 1 / (1 + mp.exp(-low)), 1 / (1 + mp.exp(low))
        return _report(method, exact_q, exact_beta, mass, gap, digits, True, why)


def _number(name: str, value: str | float, low: float, high: float | None) -> mpf:
    """A finite number in (low, high) at full precision."""
    wanted = f"in ({low:g}, {high:g})" if high is not None else f"> {low:g}"
    try:
        with mp.workdps(1100):
            number = mpf(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: expected a number {wanted}, got {value!r}") from error
    if not mpmath.isfinite(number) or number <= low or (high is not None and number >= high):
        raise InputError(f"{name}: expected a finite number {wanted}, got {value}")
    return number


def _working_digits(logit: mpf, digits: int) -> int:
    """Enough digits to hold Z and 1 - Z to `digits` digits each, side by side."""
    return digits + 15 + int(abs(logit) / 2.3)


def _bracket(slope: Slope, q: mpf, beta: mpf, digits: int) -> tuple[mpf, mpf]:
    """A bracket of the optimum's logit, 10^-(digits + 3) wide, on which the slope's sign change is certified.

    Raises ArithmeticError if interval arithmetic does not confirm the signs.
    """
    width = mpf(10) ** -(digits + 3)
    bound = abs(mp.log(q / (1 - q))) + 2 / beta + 10  # the optimum of each method is less extreme than this
    with mp.workdps(int(digits + 30 + bound / 2.3)):
        width = mpf(10) ** -(digits + 3)
        low, high = -bound, bound

        def rising(logit: mpf) -> bool:
            return slope(mp, 1 / (1 + mp.exp(-logit)), 1 / (1 + mp.exp(logit)), q, beta) > 0

        while high - low > width:
            middle = (low + high) / 2
            low, high = (middle, high) if rising(middle) else (low, middle)
        low, high = low - width, high + width
        text = [mpmath.nstr(number, mp.dps) for number in (low, high, q, beta)]
    precision = flint.ctx.prec
    flint.ctx.prec = int(3.4 * (digits + 40 + bound / 2.3))
    try:
        low_ball, high_ball, q_ball, beta_ball = (Interval.of(flint.arb(number)) for number in text)
        signs = []
        for logit in (low_ball, high_ball):
            z, y = 1 / (1 + Intervals.exp(-logit)), 1 / (1 + Intervals.exp(logit))
            signs.append(slope(Intervals, z, y, q_ball, beta_ball))
    finally:
        flint.ctx.prec = precision
    if not (signs[0] > 0 and signs[1] < 0):
        raise ArithmeticError("the sign change of the slope could not be certified")
    return low, high


def _report(
    method: str, q: mpf, beta: mpf, mass: mpf, gap: mpf, digits: int, certified: bool, why: str
) -> PopulationOptimum:
    shown = mpmath.nstr(mass, digits), mpmath.nstr(gap, digits), mpmath.nstr(mass - q, digits)
    return PopulationOptimum(method, mpmath.nstr(q, 15), mpmath.nstr(beta, 15), *shown, certified, why)


def _searched(regularizer: regularizers.Regularizer, q: mpf, beta: mpf, digits: int) -> PopulationOptimum:
    """The best Z of a regularizer that nobody analysed, along the reference's conditionals of a random reference.

    Nothing says that its optimum has those conditionals; the figure is for orientation.
    """
    rng = np.random.default_rng(0)
    correct = CorrectSet.from_mask(torch.arange(8) < 3)
    base = torch.from_numpy(rng.normal(size=8))
    logit = float(mp.log(q / (1 - q)))

    def at(target: float) -> Policy:
        policy = Policy(base, correct)
        shift = target - float(policy.log_mass - policy.log_incorrect_mass)
        return Policy(base + shift * correct.mask, correct)

    def negative(target: float) -> float:
        policy = at(target)
        return float(float(beta) * regularizer.value(policy, at(logit)) - policy.mass)

    starts = np.linspace(-40, 40, 81)
    best = min(starts, key=negative)
    found = minimize_scalar(negative, bounds=(best - 1, best + 1), method="bounded", options={"xatol": 1e-10})
    mass = mpf(float(1 / (1 + np.exp(-found.x))))
    why = (
        "not certified: a search over Z at the reference's conditionals; no closed form is registered in theory.optima"
    )
    return _report(regularizer.name, q, beta, mass, 1 - mass, min(digits, 8), False, why)
