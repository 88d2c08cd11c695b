"""Identities by algebra: whether two closed forms are the same function on their whole domain."""

from __future__ import annotations

from collections.abc import Callable

import sympy
from sympy import Expr, Symbol

from theory.claim import Evidence

Q, BETA = sympy.symbols("q beta", positive=True)
DECAY = Symbol("e", positive=True)  # exp(-1 / beta) for reverse KL, exp(-2 / beta) for Jensen-Shannon
SIGNS = (Symbol("L", negative=True), Symbol("L", nonnegative=True))


def vanishes(expression: Expr) -> bool:
    """True only if `expression` is zero wherever it is defined; its symbols stand for positive numbers.

    Square roots whose radicands are the same up to a square are one unknown R; the numerator is reduced by R^2.
    """
    expression = sympy.expand_log(expression, force=True)
    root = sympy.Dummy("R", positive=True)
    radicand = None
    for power in sorted(expression.atoms(sympy.Pow), key=sympy.count_ops):
        base, exponent = power.as_base_exp()
        if exponent.is_Rational and exponent.q == 2:
            radicand = radicand or sympy.cancel(base)
            factor = sympy.sqrt(sympy.factor(sympy.cancel(base / radicand)))
            if any(not part.exp.is_integer for part in factor.atoms(sympy.Pow)):
                return False
            expression = expression.xreplace({power: (factor * root) ** (2 * exponent)})
    numerator = sympy.numer(sympy.together(expression))
    if radicand is None:
        return sympy.cancel(numerator) == 0
    coefficients = sympy.Poly(sympy.expand(numerator), root).as_dict()
    sides = [
        sum(value * radicand ** (power // 2) for (power,), value in coefficients.items() if power % 2 == odd)
        for odd in (0, 1)
    ]
    return all(sympy.cancel(sympy.together(side)) == 0 for side in sides)


def identities(domain: str, residuals: dict[str, Expr]) -> Evidence:
    """Evidence that residuals vanish; the detail names those of which algebra does not say so. Raises ValueError
    without a residual."""
    if not residuals:
        raise ValueError("residuals: expected at least one identity")
    broken = [name for name, residual in residuals.items() if not vanishes(residual)]
    detail = f"not shown: {', '.join(broken)}" if broken else ", ".join(residuals)
    return Evidence("symbolic", domain, float(len(broken)), 0, detail)


def forward_beta(linear: Expr) -> Expr:
    """The beta at which `forward_kl_excess` branches on the sign of `linear` = beta + q - p."""
    return linear - 2 * Q + 1


def reverse_beta() -> Expr:
    """The beta at which exp(-1 / beta) is DECAY."""
    return -1 / sympy.log(DECAY)


def jensen_shannon_point(linear: Expr) -> tuple[Expr, Expr]:
    """The q and beta at which `jensen_shannon_excess` has 1 - exp(-2 / beta) = e and branches on `linear`'s sign."""
    return (linear - 1 + DECAY) / (3 * DECAY) + sympy.Rational(1, 3), -2 / sympy.log(1 - DECAY)


def forms_of_an_optimum(name: str, optimum: Callable, excess: Callable, gap: Callable) -> dict[str, Expr]:
    """Residuals of Z* - q and 1 - Z* in the forms without cancellation.

    name: forward, reverse or Jensen-Shannon.
    """
    residuals = {}
    for sign in SIGNS:
        q, beta = {
            "forward": (Q, forward_beta(sign)),
            "reverse": (Q, reverse_beta()),
            "Jensen-Shannon": jensen_shannon_point(sign),
        }[name]
        z = optimum(sympy, q, beta)
        where = "linear < 0" if sign.is_negative else "linear >= 0"
        residuals[f"{name} Z* - q ({where})"] = excess(sympy, q, 1 - q, beta) - (z - q)
        residuals[f"{name} 1 - Z* ({where})"] = gap(sympy, q, 1 - q, beta) - (1 - z)
    return residuals
