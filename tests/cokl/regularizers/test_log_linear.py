"""Log-linear forms against the definitions: the measure, the logs and the masses written out over single actions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cokl.regularizers.log_linear import LogLinear
from tests.cokl.cases import VARIANTS
from tests.oracles import exact

WITHOUT = {"jensen_shannon"}
CORRECT = [True, False, True, True, False, False]


def written_out(form: LogLinear, policy: list[float], reference: list[float]) -> float:
    """E_measure[a log pi + b log pi_ref] + c log Z + d log q."""
    measures = {
        "policy": policy,
        "policy_given_correct": exact.conditioned(policy, CORRECT),
        "policy_and_correct": [p if right else 0.0 for p, right in zip(policy, CORRECT, strict=True)],
        "reference": reference,
        "reference_given_correct": exact.conditioned(reference, CORRECT),
    }
    total = form.log_mass * math.log(exact.mass(policy, CORRECT))
    total += form.log_reference_mass * math.log(exact.mass(reference, CORRECT))
    for weight, p, q in zip(measures[form.measure], policy, reference, strict=True):
        total += weight * (form.policy * math.log(p) + form.reference * math.log(q))
    return total


@pytest.mark.parametrize("variant", sorted(set(VARIANTS) - WITHOUT))
def test_a_form_is_the_value_that_the_definition_has(variant: str):
    rng = np.random.default_rng(7)
    form = VARIANTS[variant].log_linear()
    assert form is not None
    for _ in range(5):
        policy, reference = (exact.softmax(rng.normal(0, 2, len(CORRECT)).tolist(), math) for _ in range(2))
        expected = exact.VALUES[variant](policy, reference, CORRECT, math)
        assert written_out(form, policy, reference) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_a_form_is_conditional_where_the_value_looks_at_correctness(variant: str):
    form = VARIANTS[variant].log_linear()
    assert (form is None) == (variant in WITHOUT)
    if form is not None:
        assert form.conditional == (variant not in ("entropy", "forward_kl", "reverse_kl"))


@pytest.mark.parametrize(
    ("form", "conditional"),
    [
        (LogLinear(), False),
        (LogLinear("reference", policy=1), False),
        (LogLinear("policy_and_correct"), True),
        (LogLinear("reference_given_correct"), True),
        (LogLinear(log_mass=1), True),
        (LogLinear(log_mass=-0.5), True),
        (LogLinear(log_reference_mass=1), True),
        (LogLinear(log_mass=1, log_reference_mass=-1), True),
    ],
)
def test_each_part_that_looks_at_correctness_makes_a_form_conditional(form: LogLinear, conditional: bool):
    assert form.conditional is conditional
