"""Certificates: right answers pass, and a wrong claim or a wrong solution does not."""

import numpy as np
import pytest

from cokl.support.errors import InputError
from theory.provers.convex import CONDITIONAL_PENALTIES, PENALTIES, TOLERANCE, Reference, maximise, random_references


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
