"""The formulas under test: what the paper states, and what the toolkit computes under the names it is imported by.

Every claim compares functions of this module, or a regularizer of `regularizers`, with something computed another way:
the definition, a convex program, a derivative, a rigorous enclosure. The mutation tests put wrong ones in their place,
so a claim names them through the module.

Symbols: q = Z_ref and p = 1 - q, z = Z_pi, beta > 0 the coefficient, G >= 1 the group size. Scalar formulas are generic
in their arithmetic `num` (see `theory.provers.arithmetic`); p is passed beside q where 1 - q would lose digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cokl import regularizers as registry
from cokl.decomposition import decompose_kl
from cokl.floor import floor_logit_gradient, floor_value, sampled_floor_weights
from cokl.groups import importance_ratios, reference_weights, rollout_weights
from theory.recovery import recovery, recovery_derivative, zero_correct_probability

__all__ = [
    "decompose_kl",
    "floor_logit_gradient",
    "floor_value",
    "importance_ratios",
    "recovery",
    "recovery_derivative",
    "reference_weights",
    "rollout_weights",
    "sampled_floor_weights",
    "zero_correct_probability",
]
"""What the toolkit computes, beside the formulas that are defined here."""

Scalar = Any
Formula = Callable[..., Scalar]
regularizers: dict[str, Any] = {name: registry.get(name) for name in registry.names()}


def bernoulli_kl(num, a: Scalar, b: Scalar) -> Scalar:
    """D_KL(Bern(a) || Bern(b)) (Appendix A)."""
    return a * num.log(a / b) + (1 - a) * num.log((1 - a) / (1 - b))


def forward_kl_optimum(num, q: Scalar, beta: Scalar) -> Scalar:
    """Z*_FKL (Theorem 2)."""
    return (1 - beta + num.sqrt((beta - 1) ** 2 + 4 * beta * q)) / 2


def forward_kl_slope(num, z: Scalar, q: Scalar, beta: Scalar) -> Scalar:
    """f'(z), f = z - beta D_KL(Bern(q) || Bern(z)) (Appendix D)."""
    return 1 - beta * (z - q) / (z * (1 - z))


def forward_kl_curvature(num, z: Scalar, y: Scalar, q: Scalar, p: Scalar, beta: Scalar) -> Scalar:
    """f''(z), y = 1 - z (Appendix D)."""
    return -beta * (q / z**2 + p / y**2)


def forward_kl_coefficient(num, z: Scalar, q: Scalar) -> Scalar:
    """h(z), the beta whose optimum is z, for q < z < 1 (Appendix D)."""
    return z * (1 - z) / (z - q)


def forward_kl_coefficient_slope(num, excess: Scalar, q: Scalar, p: Scalar) -> Scalar:
    """h'(z) at z = q + excess (Appendix D)."""
    return -(excess**2 + q * p) / excess**2


def forward_kl_root_product(num, q: Scalar, beta: Scalar) -> Scalar:
    """Product of the two roots of the stationarity quadratic (Appendix D)."""
    return -beta * q


def forward_kl_excess(num, q: Scalar, p: Scalar, beta: Scalar) -> Scalar:
    """Z*_FKL - q without cancellation: the positive root of w^2 + (2 q + beta - 1) w - q p (beyond the paper)."""
    linear = beta + q - p
    root = num.sqrt(linear**2 + 4 * q * p)
    return (root - linear) / 2 if linear < 0 else 2 * q * p / (root + linear)


def forward_kl_gap(num, q: Scalar, p: Scalar, beta: Scalar) -> Scalar:
    """1 - Z*_FKL without cancellation: the smaller root of v^2 - (1 + beta) v + beta p (beyond the paper)."""
    return 2 * beta * p / (1 + beta + num.sqrt((1 - beta) ** 2 + 4 * beta * q))


def forward_kl_optimum_slope(num, q: Scalar, p: Scalar, beta: Scalar) -> Scalar:
    """dZ*_FKL / dbeta = -(Z* - q) / (2 Z* + beta - 1) (beyond the paper; by implicit differentiation)."""
    return -forward_kl_excess(num, q, p, beta) / num.sqrt((1 - beta) ** 2 + 4 * beta * q)


def forward_kl_excess_rate(num, q: Scalar, p: Scalar, inverse: Scalar) -> Scalar:
    """(Z*_FKL - q) beta / (q p) as a function of 1 / beta, continuous at 0, where it is 1 (beyond the paper)."""
    linear = 1 + inverse * (q - p)
    return 2 / (linear + num.sqrt(linear**2 + 4 * q * p * inverse**2))


def forward_kl_gap_rate(num, q: Scalar, p: Scalar, beta: Scalar) -> Scalar:
    """(1 - Z*_FKL) / (beta p), continuous at beta = 0, where it is 1 (beyond the paper)."""
    return 2 / (1 + beta + num.sqrt((1 - beta) ** 2 + 4 * beta * q))


def reverse_kl_gap_rate(num, q: Scalar, p: Scalar, decay: Scalar) -> Scalar:
    """(1 - Z*_RKL) exp(1 / beta) / p as a function of exp(-1 / beta), continuous at 0 (beyond the paper)."""
    return 1 / (q + p * decay)


def reverse_kl_optimum(num, q: Scalar, beta: Scalar) -> Scalar:
    """Z*_RKL = sigmoid(logit q + 1 / beta) (Theorem 2)."""
    return 1 / (1 + num.exp(-(num.log(q / (1 - q)) + 1 / beta)))


def reverse_kl_slope(num, z: Scalar, q: Scalar, beta: Scalar) -> Scalar:
    """g'(z), g = z - beta D_KL(Bern(z) || Bern(q)) (Appendix D)."""
    return 1 - beta * num.log(z * (1 - q) / (q * (1 - z)))


def reverse_kl_curvature(num, z: Scalar, y: Scalar, q: Scalar, p: Scalar, beta: Scalar) -> Scalar:
    """g''(z), y = 1 - z, the same for every q (Appendix D)."""
    return -beta / (z * y)


def reverse_kl_optimum_slope(num, z: Scalar, y: Scalar, beta: Scalar) -> Scalar:
    """dZ*_RKL / dbeta at z = Z*_RKL, y = 1 - z (Appendix D)."""
    return -z * y / beta**2


def reverse_kl_excess(num, q: Scalar, p: Scalar, beta: Scalar) -> Scalar:
    """Z*_RKL - q = q p (1 - e) / (q + p e) with e = exp(-1 / beta), without cancellation (beyond the paper)."""
    decay = num.exp(-1 / beta)
    return q * p * (1 - decay) / (q + p * decay)


def reverse_kl_gap(num, q: Scalar, p: Scalar, beta: Scalar) -> Scalar:
    """1 - Z*_RKL = sigmoid(-logit q - 1 / beta), without cancellation (beyond the paper)."""
    return 1 / (1 + num.exp(num.log(q / p) + 1 / beta))


def jensen_shannon_optimum(num, q: Scalar, beta: Scalar) -> Scalar:
    """Z*_JS, the positive root of (1 - e) z^2 + (e - (1 - q)(1 - e)) z - q with e = exp(-2 / beta) (beyond)."""
    decay = num.exp(-2 / beta)
    linear = decay - (1 - q) * (1 - decay)
    return (num.sqrt(linear**2 + 4 * (1 - decay) * q) - linear) / (2 * (1 - decay))


def jensen_shannon_slope(num, z: Scalar, q: Scalar, beta: Scalar) -> Scalar:
    """d/dz of z - beta JS(Bern(z), Bern(q)) (beyond the paper)."""
    return 1 - beta * (num.log(2 * z / (z + q)) - num.log(2 * (1 - z) / (2 - z - q))) / 2


def jensen_shannon_excess(num, q: Scalar, p: Scalar, beta: Scalar) -> Scalar:
    """Z*_JS - q: the positive root of u w^2 + (e + u (2 q - p)) w - 2 q p u, u = 1 - e, e = exp(-2 / beta) (beyond)."""
    decay = num.exp(-2 / beta)
    unit = 1 - decay
    linear = decay + unit * (2 * q - p)
    root = num.sqrt(linear**2 + 8 * q * p * unit**2)
    return (root - linear) / (2 * unit) if linear < 0 else 4 * q * p * unit / (root + linear)


def jensen_shannon_gap(num, q: Scalar, p: Scalar, beta: Scalar) -> Scalar:
    """1 - Z*_JS: the smaller root of u v^2 - (1 + u q) v + p e (beyond the paper)."""
    decay = num.exp(-2 / beta)
    unit = 1 - decay
    return 2 * p * decay / (1 + unit * q + num.sqrt((decay - p * unit) ** 2 + 4 * unit * q))


def entropy_optimum(num, fraction: Scalar, beta: Scalar) -> Scalar:
    """Z* of the entropy bonus, sigmoid(logit c + 1 / beta) with c = correct actions / actions (beyond the paper)."""
    return reverse_kl_optimum(num, fraction, beta)


def recovery_closed_form(num, z: Scalar, size: int) -> Scalar:
    """R_G(Z) = -log Z - sum_{m=1}^G (1 - Z)^m / m (Appendix B)."""
    return -num.log(z) - sum((1 - z) ** m / m for m in range(1, size + 1))


def recovery_slope(num, z: Scalar, size: Scalar) -> Scalar:
    """R_G'(Z) = -(1 - Z)^G / Z (Appendix B)."""
    return -((1 - z) ** size) / z


def recovery_lower(num, z: Scalar, size: Scalar) -> Scalar:
    """(1 - Z)^(G + 1) / (G + 1) <= R_G(Z), the series' first term (beyond the paper)."""
    return (1 - z) ** (size + 1) / (size + 1)


def recovery_upper(num, z: Scalar, size: Scalar) -> Scalar:
    """R_G(Z) <= (1 - Z)^(G + 1) / ((G + 1) Z), the geometric majorant (beyond the paper)."""
    return (1 - z) ** (size + 1) / ((size + 1) * z)


def positive_count_probability(num, z: Scalar, size: Scalar) -> Scalar:
    """Pr(K > 0) = 1 - (1 - Z)^G (Appendix B), the weight of the current-policy term in Eq. appb-finite-gradient."""
    return 1 - (1 - z) ** size


def finite_objective_slope(num, z: Scalar, size: Scalar, beta: Scalar) -> Scalar:
    """dJ_G / dZ = 1 + beta (1 - Z)^G / Z (Appendix B)."""
    return 1 + beta * (1 - z) ** size / z


def without_term1_finite_slope(num, z: Scalar, size: Scalar, beta: Scalar) -> Scalar:
    """d/dZ of Z - beta (log Z + R_G(Z)), what finite groups make of the ablation (beyond the paper)."""
    return 1 - beta * (1 - (1 - z) ** size) / z


def without_term1_threshold(num, size: int) -> Scalar:
    """The coefficient 1 / H_G above which the finite-group ablation w/o term 1 is best at Z = 0 (beyond the paper)."""
    return 1 / sum(num.exp(0) / m for m in range(1, size + 1))


def pair_probability(num, z: Scalar, size: Scalar) -> Scalar:
    """Pr(K > 1), the factor by which finite groups shrink correct-only reverse KL's gradient (beyond the paper)."""
    return 1 - (1 - z) ** size - size * z * (1 - z) ** (size - 1)
