"""Certificates: right answers pass, and a wrong claim or a wrong solution does not."""

import dataclasses
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest

from cokl.support.errors import InputError
from theory.provers.convex import (
    CONDITIONAL_PENALTIES,
    PENALTIES,
    TOLERANCE,
    Certificate,
    Reference,
    certified_maximum,
    maximise,
    outside,
    random_references,
    solved,
)

REFERENCE = Reference(np.array([0.2, 0.1, 0.5, 0.2]), 2)


@pytest.mark.parametrize("name", [*PENALTIES, *CONDITIONAL_PENALTIES])
def test_certificate_is_tight(name):
    for reference, beta in random_references(3, 3):
        certificate = maximise(name, reference, beta)
        assert certificate.worst <= TOLERANCE
        mass = (
            certificate.solution[0]
            if name in CONDITIONAL_PENALTIES
            else certificate.solution[: reference.correct].sum()
        )
        assert -1e-6 < mass < 1 + 1e-6


def test_bound_is_above_every_policy():
    rng = np.random.default_rng(0)
    for reference, beta in random_references(4, 5):
        bound = maximise("reverse_kl", reference, beta).value
        for policy in rng.dirichlet(np.ones(len(reference.probs)), size=50):
            value = policy[: reference.correct].sum() - beta * (policy * np.log(policy / reference.probs)).sum()
            assert value <= bound + TOLERANCE


@pytest.mark.parametrize(
    ("probs", "correct", "word"), [([0.5, 0.5], 0, "correct"), ([0.5, 0.5], 2, "correct"), ([1.0, 0.0], 1, "probs")]
)
def test_bad_reference_is_named(probs, correct, word):
    with pytest.raises(InputError, match=f"^{word}:"):
        Reference(np.array(probs), correct)


@pytest.mark.parametrize("beta", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_coefficient_is_named(beta):
    with pytest.raises(InputError, match=r"^beta:"):
        maximise("forward_kl", Reference(np.array([0.5, 0.5]), 1), beta)


def program(name="forward_kl", beta=0.5):
    """A program over exponential cones, with the raw vectors that solve it."""
    policy = cp.Variable(4)
    objective = cp.sum(policy[:2]) - beta * PENALTIES[name](policy, REFERENCE)
    cone, raw, solution = solved(objective, [cp.sum(policy) == 1, policy >= 0], policy)
    return cone, solution, {name: np.array(getattr(raw, name)) for name in ("x", "s", "z")}


def certificate(cone, solution, vectors):
    return cone.certificate(solution, vectors["x"], vectors["s"], vectors["z"])


@pytest.mark.parametrize("name", ["forward_kl", "jensen_shannon", "correct_forward_kl"])
@pytest.mark.parametrize(
    ("wrong", "figures"),
    [("x", ("primal",)), ("s", ("primal",)), ("z", ("dual", "gap"))],
)
def test_a_wrong_vector_is_refused_in_every_coordinate(name, wrong, figures):
    cone, solution, vectors = program(name)
    assert certificate(cone, solution, vectors).worst <= TOLERANCE
    for index in range(len(vectors[wrong])):
        for change in (1e-3, -1e-3):
            changed = vectors[wrong].copy()
            changed[index] += change
            refused = certificate(cone, solution, {**vectors, wrong: changed})
            assert refused.worst > TOLERANCE
            assert any(abs(getattr(refused, figure)) > TOLERANCE for figure in figures)


@pytest.mark.parametrize("wrong", ["x", "s", "z"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_is_refused(wrong, value):
    cone, solution, vectors = program()
    for index in [*range(len(vectors[wrong])), slice(None)]:
        changed = vectors[wrong].copy()
        changed[index] = value
        with np.errstate(all="ignore"), pytest.raises(ArithmeticError, match="refused"):
            certificate(cone, solution, {**vectors, wrong: changed})
    with pytest.raises(ArithmeticError, match="solution not finite"):
        certificate(cone, np.full(4, value), vectors)


def test_the_solution_of_another_program_is_refused():
    cone, _, _ = program(beta=0.5)
    _, solution, vectors = program(beta=0.6)
    refused = certificate(cone, solution, vectors)
    assert refused.worst > 1e-3


def test_a_feasible_pair_that_is_not_optimal_is_refused_for_its_gap():
    cone, _, vectors = program(beta=0.5)
    _, solution, other = program(beta=0.6)
    refused = certificate(cone, solution, {**other, "z": vectors["z"]})
    assert max(refused.primal, refused.dual) <= TOLERANCE
    assert TOLERANCE < abs(refused.gap) < 0.1


def test_a_certificate_without_a_number_is_refused():
    right = Certificate(value=1.0, solution=np.ones(2), primal=0.0, dual=0.0, gap=0.0)
    for name, figure in dataclasses.asdict(right).items():
        with pytest.raises(ArithmeticError, match=f"{name} not finite"):
            dataclasses.replace(right, **{name: figure * np.nan})


def test_an_unbounded_program_is_refused():
    free = cp.Variable(1)
    with pytest.raises(ArithmeticError, match="found no solution"):
        solved(cp.sum(free), [], free)


@pytest.mark.parametrize("penalty", [cp.sum_squares, cp.norm2])
def test_a_program_over_other_cones_is_refused(penalty):
    """Whose certificate would be another: quadratic objectives and second-order cones."""
    free = cp.Variable(2)
    with pytest.raises((AssertionError, ValueError)):
        certified_maximum(-penalty(free - 1), [free >= 0], free)


def cones(zero=0, nonneg=0, exp=0):
    return SimpleNamespace(zero=zero, nonneg=nonneg, exp=exp)


INSIDE_BOTH = [(cones(nonneg=2), [0.0, 3.0]), (cones(zero=1, nonneg=1), [0.0, 1.0])]
OUTSIDE = [  # cones, a vector, whether as a dual, and its distance
    (cones(zero=2), [0.0, -0.5], False, 0.5),
    (cones(nonneg=2), [1.0, -0.5], False, 0.5),
    (cones(nonneg=2), [1.0, -0.5], True, 0.5),
    (cones(zero=1, nonneg=2), [0.0, 1.0, -0.5], False, 0.5),
    (cones(zero=1, nonneg=2), [0.0, 1.0, -0.5], True, 0.5),
    (cones(exp=1), [0.0, 1.0, -5.0], True, 5.0),
    (cones(exp=1), [0.0, -2.0, 1.0], True, 2.0),
    (cones(exp=1), [3.0, 1.0, 1.0], True, 3.0),
    (cones(exp=1), [-1.0, -1.0, 0.0], True, np.exp(-0.0)),
    (cones(exp=1), [0.0, 1.0, 0.5], False, 0.5),
    (cones(exp=1), [2.0, 0.0, 1.0], False, 2.0),
    (cones(exp=1), [-1.0, 0.0, -3.0], False, 3.0),
    (cones(exp=1), [-1.0, -4.0, 1.0], False, 4.0),
    (cones(nonneg=1, exp=2), [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, -5.0], False, 6.0),
]
INSIDE_EXP = [
    ([0.0, 1.0, 1.0], False),
    ([-1.0, 0.0, 0.0], False),
    ([1.0, 1.0, 3.0], False),
    ([-1.0, 0.0, 1.0], True),
    ([0.0, 1.0, 5.0], True),
    ([-1.0, 1.0, 1.0], True),
]


@pytest.mark.parametrize(("dims", "vector"), INSIDE_BOTH)
@pytest.mark.parametrize("dual", [False, True])
def test_a_vector_in_a_self_dual_cone_is_accepted(dims, vector, dual):
    assert outside(dims, np.array(vector), dual) == 0


@pytest.mark.parametrize(("vector", "dual"), INSIDE_EXP)
def test_a_vector_in_the_exponential_cone_is_accepted(vector, dual):
    assert outside(cones(exp=1), np.array(vector), dual) == 0


@pytest.mark.parametrize(("dims", "vector", "dual", "distance"), OUTSIDE)
def test_a_vector_outside_a_cone_is_refused(dims, vector, dual, distance):
    assert TOLERANCE < outside(dims, np.array(vector), dual) <= distance * (1 + 1e-12)


@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize("index", range(5))
def test_nan_is_outside_every_cone(dual, index):
    vector = np.array([0.0, 1.0, -1.0, 1.0, 3.0])
    vector[index] = np.nan
    assert np.isnan(outside(cones(zero=1, nonneg=1, exp=1), vector, dual))
