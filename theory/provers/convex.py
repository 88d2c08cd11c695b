"""Convex programs whose optimum is believed only for its certificate, which is recomputed from the raw solution.

cvxpy turns a concave maximisation into min c'x with Ax + s = b, s in K, here a product of exponential cones and the
nonnegative reals, and Clarabel returns x, s and the dual z. Any s in K with Ax + s = b bounds the optimum from one side
and any z in K* with c + A'z = 0 from the other, so feasibility of both and a small gap prove the value, whatever the
solver did to find them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.reductions.dcp2cone.cone_matrix_stuffing import ConeDims
from scipy import sparse

from cokl.support.errors import InputError

TOLERANCE = 1e-8
"""Of the duality gap, the residuals and the cone violations: a thousand times what the solver is asked for."""


@dataclass(frozen=True)
class Certificate:
    """A concave maximisation, solved and checked.

    value: the maximum, as the dual bound gives it. solution: the maximising variable, flattened to one axis.
    primal, dual: largest violation of the primal (dual) equations and cones. gap: primal minus dual objective.

    Raises ArithmeticError if a figure is not finite: such an answer certifies nothing.
    """

    value: float
    solution: np.ndarray
    primal: float
    dual: float
    gap: float

    def __post_init__(self) -> None:
        figures = {"value": self.value, "primal": self.primal, "dual": self.dual, "gap": self.gap}
        broken = [name for name, figure in figures.items() if not np.isfinite(figure)]
        if not np.isfinite(self.solution).all():
            broken.append("solution")
        if broken:
            raise ArithmeticError(f"the certificate is refused: {', '.join(broken)} not finite")

    @property
    def worst(self) -> float:
        """The largest of the three figures."""
        return max(self.primal, self.dual, abs(self.gap))


@dataclass(frozen=True)
class ConeProgram:
    """min linear'x with matrix x + s = constant and s in the cones of `dims`, as Clarabel has it.

    With n variables and m constraints: linear (n,), matrix (m, n), constant (m,). offset: what the concave maximum is
    away from minus the minimum.
    """

    linear: np.ndarray
    matrix: sparse.csc_array
    constant: np.ndarray
    dims: ConeDims
    offset: float

    def certificate(self, solution: np.ndarray, x: np.ndarray, slack: np.ndarray, dual: np.ndarray) -> Certificate:
        """The certificate of what a solver returned, trusting none of it.

        solution: the variable, flattened. x: (n,). slack, dual: (m,), s and z.
        Raises ArithmeticError if a figure is not finite.
        """
        primal_objective, dual_objective = self.linear @ x, -self.constant @ dual
        equations = np.abs(self.matrix @ x + slack - self.constant).max()
        dual_equations = np.abs(self.linear + self.matrix.T @ dual).max()
        return Certificate(
            value=-float(dual_objective + self.offset),  # the solver's program is cvxpy's up to sign and offset
            solution=solution,
            primal=float(np.max([equations, outside(self.dims, slack, dual=False)])),
            dual=float(np.max([dual_equations, outside(self.dims, dual, dual=True)])),
            gap=float(primal_objective - dual_objective),
        )


def certified_maximum(objective: cp.Expression, constraints: list[cp.Constraint], variable: cp.Variable) -> Certificate:
    """Maximise a concave `objective` under `constraints` with Clarabel and recompute its certificate.

    Raises cvxpy's DCPError if the problem does not follow the rules by which cvxpy recognises convexity, and
    ArithmeticError if the solver's answer is not finite.
    """
    program, raw, solution = solved(objective, constraints, variable)
    return program.certificate(solution, *(np.asarray(vector) for vector in (raw.x, raw.s, raw.z)))


def solved(
    objective: cp.Expression, constraints: list[cp.Constraint], variable: cp.Variable
) -> tuple[ConeProgram, Any, np.ndarray]:
    """The program that Clarabel is given, its raw answer, and the maximising `variable`, flattened.

    The answer's vectors are x (variables,), s and z (constraints,). Raises cvxpy's DCPError if the problem does not
    follow the rules by which cvxpy recognises convexity, and ArithmeticError if the solver found no solution.
    """
    problem = cp.Problem(cp.Maximize(objective), constraints)
    options = {**dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), TOLERANCE / 1000), "accept_unknown": True}
    data, chain, inverse = problem.get_problem_data(cp.CLARABEL, solver_opts=options)
    raw = chain.solve_via_data(problem, data, solver_opts=options)
    with warnings.catch_warnings(action="ignore"):  # a status of "may be inaccurate" is settled by the certificate
        problem.unpack_results(raw, chain, inverse)
    if variable.value is None:
        raise ArithmeticError(f"the certificate is refused: the solver found no solution ({problem.status})")
    assert data.get("P") is None, "the objective is not linear in the program's variables"
    program = ConeProgram(data["c"], data["A"], data["b"], data["dims"], inverse[-1]["offset"])
    return program, raw, np.asarray(variable.value).ravel()


def outside(dims: ConeDims, vector: np.ndarray, dual: bool) -> float:
    """How far a slack or `dual` vector (m,) lies outside the cones K (K*), in Clarabel's order; NaN if it holds one.

    At most the distance in the largest component for the exponential cone, whose face has its own inequalities.
    Raises ValueError for a cone that is neither exponential nor made of signs.
    """
    violations = [np.zeros(1)] if dual else [np.abs(vector[: dims.zero])]
    violations.append(-vector[dims.zero : dims.zero + dims.nonneg])
    start = dims.zero + dims.nonneg
    x, y, z = vector[start:].reshape(dims.exp, 3).T
    with np.errstate(all="ignore"):
        if dual:  # -x exp(y / x) <= e z with x < 0, or x = 0 with y, z >= 0
            face, inside, raised = np.maximum(-y, -z), x < 0, -x * np.exp(y / x - 1) - z
            face = np.maximum(face, np.abs(x))
        else:  # y exp(x / y) <= z with y > 0, or y = 0 with x <= 0, z >= 0
            face, inside, raised = np.maximum(x, -z), y > 0, y * np.exp(x / y) - z
            face = np.maximum(face, np.abs(y))
        violations.append(np.where(inside, np.fmin(face, raised), face))
    violations.append(np.where(np.isnan(vector), np.nan, 0.0))
    return float(np.max(np.concatenate([np.zeros(1), *violations])))


@dataclass(frozen=True)
class Reference:
    """A reference distribution `probs` (A,) > 0 whose first `correct` actions are the correct ones.

    Raises InputError if all actions or none are correct, or a probability is not positive.
    """

    probs: np.ndarray
    correct: int

    def __post_init__(self) -> None:
        if not 1 <= self.correct < len(self.probs):
            raise InputError(
                f"correct: expected between 1 and {len(self.probs) - 1} correct actions, got {self.correct}"
            )
        if not (self.probs > 0).all():
            raise InputError(f"probs: expected positive probabilities, got {self.probs}")

    @property
    def q(self) -> float:
        """The probability of a correct action, in (0, 1)."""
        return float(self.probs[: self.correct].sum())

    @property
    def plus(self) -> np.ndarray:
        """pi_ref+ over the correct actions, (correct,)."""
        return self.probs[: self.correct] / self.q

    def moved_to(self, mass: float) -> np.ndarray:
        """The policy with correctness `mass` and the reference's conditionals (A,)."""
        wrong = self.probs[self.correct :]
        return np.concatenate([mass * self.plus, (1 - mass) * wrong / wrong.sum()])


def random_references(seed: int, count: int) -> list[tuple[Reference, float]]:
    """`count` references of 3 to 40 actions, q uniform over [0.02, 0.98], beta log-uniform over [0.02, 20]."""
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(count):
        size = int(rng.integers(3, 41))
        correct = int(rng.integers(1, size))
        q = rng.uniform(0.02, 0.98)
        plus, minus = (rng.dirichlet(np.full(n, 2.0)) + 1e-3 for n in (correct, size - correct))
        probs = np.concatenate([q * plus / plus.sum(), (1 - q) * minus / minus.sum()])
        drawn.append((Reference(probs, correct), float(10 ** rng.uniform(np.log10(0.02), np.log10(20)))))
    return drawn


Penalty = Callable[[cp.Expression, Reference], cp.Expression]


def _jensen_shannon(policy: cp.Expression, reference: Reference) -> cp.Expression:
    mixture = (policy + reference.probs) / 2
    return (cp.sum(cp.rel_entr(policy, mixture)) + cp.sum(cp.rel_entr(reference.probs, mixture))) / 2


PENALTIES: dict[str, Penalty] = {
    "entropy": lambda policy, reference: -cp.sum(cp.entr(policy)),
    "forward_kl": lambda policy, reference: cp.sum(cp.rel_entr(reference.probs, policy)),
    "reverse_kl": lambda policy, reference: cp.sum(cp.rel_entr(policy, reference.probs)),
    "jensen_shannon": _jensen_shannon,
    "correct_forward_kl": lambda policy, reference: cp.sum(cp.rel_entr(reference.plus, policy[: reference.correct])),
}
"""Penalties that are convex in pi (A,), by name."""

CONDITIONAL_PENALTIES: dict[str, Penalty] = {
    "cokl": lambda plus, reference: cp.sum(cp.rel_entr(reference.plus, plus)),
    "correct_reverse_kl": lambda plus, reference: cp.sum(cp.rel_entr(plus, reference.probs[: reference.correct])),
}
"""Penalties that are convex in pi+ (K,) and depend on nothing else; not convex in pi."""


def maximise(name: str, reference: Reference, beta: float) -> Certificate:
    """max of Z - beta D over the simplex of pi, or over (Z, pi+) for a conditional penalty.

    Raises InputError for a beta that is not positive and finite.
    """
    if not (beta > 0 and np.isfinite(beta)):
        raise InputError(f"beta: expected a finite coefficient > 0, got {beta}")
    if name in CONDITIONAL_PENALTIES:
        pair = cp.Variable(1 + reference.correct)
        mass, plus = pair[0], pair[1:]
        objective = mass - beta * CONDITIONAL_PENALTIES[name](plus, reference)
        return certified_maximum(objective, [mass >= 0, mass <= 1, cp.sum(plus) == 1, plus >= 0], pair)
    policy = cp.Variable(len(reference.probs))
    objective = cp.sum(policy[: reference.correct]) - beta * PENALTIES[name](policy, reference)
    return certified_maximum(objective, [cp.sum(policy) == 1, policy >= 0], policy)
