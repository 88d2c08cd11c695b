"""The finite-group correctness recovery R_G (Appendix B): what zero-correct rollout groups add to CoKL.

With x = 1 - Z, R_G(Z) = sum of x^m / m over m > G = -log Z - sum of x^m / m over 1 <= m <= G. Its closed form cancels
for Z near 1 or large G, and its series crawls for small Z, so neither is computed here. Both follow from
R_G(Z) = integral from Z to 1 of (1 - t)^G / t dt, whose derivative is R_G'.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, roots_laguerre

from cokl.regularizers.base import FloatArray
from cokl.support.errors import InputError

_LEGENDRE = np.polynomial.legendre.leggauss(24)
_LAGUERRE = roots_laguerre(96)


def zero_correct_probability(mass: npt.ArrayLike, group_size: npt.ArrayLike) -> FloatArray:
    """Probability (1 - Z)^G that a group of G rollouts holds no correct response (Appendix B).

    Args:
        mass: Z, in (0, 1].
        group_size: G >= 1; broadcasts against `mass`.

    Returns:
        The probability, in [0, 1), elementwise.

    Raises:
        InputError: an argument out of its range, which it names.

    Examples:
        >>> zero_correct_probability(0.5, [1, 2, 3])
        array([0.5  , 0.25 , 0.125])
    """
    mass, group_size = _validated(mass, group_size)
    with np.errstate(divide="ignore"):
        return np.exp(group_size * np.log1p(-mass))


def recovery(mass: npt.ArrayLike, group_size: npt.ArrayLike) -> FloatArray:
    """R_G(Z) (Appendix B), with a relative error near rounding for every Z and G.

    Few expected correct responses, (G + 1) Z < 1: the integral is -log Z - H_G + int_0^Z (1 - (1 - t)^G) / t dt, where
    the last integrand is smooth. Otherwise 1 - t = (1 - Z) exp(-w / (G + 1)) turns it into
    (1 - Z)^(G + 1) / (G + 1) int_0^inf e^-w / (1 - (1 - Z) exp(-w / (G + 1))) dw, whose poles have |w| > 1.

    Args:
        mass: Z, in (0, 1].
        group_size: G >= 1; broadcasts against `mass`.

    Returns:
        R_G(Z) in nats, >= 0, elementwise; zero at Z = 1.

    Raises:
        InputError: an argument out of its range, which it names.

    Examples:
        >>> recovery(0.5, [1, 8]).round(6)
        array([0.193147, 0.000397])
    """
    mass, group_size = np.broadcast_arrays(*_validated(mass, group_size))
    rare = mass * (group_size + 1) < 1
    nodes, weights = _LEGENDRE
    fractions = (nodes + 1) / 2
    small = np.where(rare, mass, 0.5 / group_size)[..., None]
    hits = -np.expm1(group_size[..., None] * np.log1p(-small * fractions))
    below = (weights / 2 * hits / fractions).sum(-1)
    few = -np.log(small[..., 0]) - (digamma(group_size + 1) + np.euler_gamma) + below
    nodes, weights = _LAGUERRE
    with np.errstate(divide="ignore"):
        log_incorrect = np.log1p(-np.where(rare, 0.5, mass))
    tail = (weights / -np.expm1(log_incorrect[..., None] - nodes / (group_size[..., None] + 1))).sum(-1)
    many = np.exp((group_size + 1) * log_incorrect) / (group_size + 1) * tail
    result: FloatArray = np.where(rare, few, many)
    return result


def recovery_derivative(mass: npt.ArrayLike, group_size: npt.ArrayLike) -> FloatArray:
    """R_G'(Z) = -(1 - Z)^G / Z (Appendix B): the slope of what finite groups add to CoKL.

    Args:
        mass: Z, in (0, 1].
        group_size: G >= 1; broadcasts against `mass`.

    Returns:
        The derivative in nats, elementwise; negative for Z < 1 and zero at Z = 1.

    Raises:
        InputError: an argument out of its range, which it names.

    Examples:
        >>> recovery_derivative(0.5, [1, 2, 3])
        array([-1.  , -0.5 , -0.25])
    """
    return -zero_correct_probability(mass, group_size) / np.asarray(mass, dtype=np.float64)


def _validated(mass: npt.ArrayLike, group_size: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    mass, group_size = np.asarray(mass, dtype=np.float64), np.asarray(group_size, dtype=np.float64)
    if not np.all((mass > 0) & (mass <= 1)):
        raise InputError(f"mass: expected a correctness in (0, 1], got {mass}")
    if not np.all((group_size >= 1) & np.isfinite(group_size)):
        raise InputError(f"group_size: expected at least one response, got {group_size}")
    return mass, group_size
