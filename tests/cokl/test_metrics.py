"""Metrics: coverage against its definition and against sampling, correctness, and zero-correct groups."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cokl.metrics import correctness, coverage, expected_zero_correct_rate, pass_at_k
from cokl.policy import CorrectSet, Policy
from tests.cokl.cases import Case, assert_close, cases
from tests.oracles import exact


@given(case=cases(allow_empty=False), k=st.sampled_from([1, 2, 64, 1000]), conditional=st.booleans())
def test_coverage_equals_its_definition(case: Case, k: int, conditional: bool):
    expected = []
    for logits, _, correct in case.contexts():
        policy = exact.softmax(logits, exact.PRECISE)
        drawn_from = exact.conditioned(policy, correct) if conditional else policy
        expected.append(float(exact.coverage(drawn_from, correct, k)))
    assert_close(coverage(case.policies()[0], k, conditional), expected, 1e-12)


@given(case=cases(), k=st.sampled_from([1, 2, 8, 1000]))
def test_pass_at_k_equals_its_definition(case: Case, k: int):
    expected = []
    for logits, _, correct in case.contexts():
        wrong = sum(p for p, right in zip(exact.softmax(logits, exact.PRECISE), correct, strict=True) if not right)
        expected.append(float(1 - wrong**k))
    assert_close(pass_at_k(case.policies()[0], k), expected, 1e-12)


def test_pass_at_k_needs_a_draw():
    policy = Policy(torch.zeros(3), CorrectSet.from_mask(torch.tensor([True, False, False])))
    with pytest.raises(ValueError, match="at least one draw"):
        pass_at_k(policy, 0)


def test_coverage_of_certain_and_of_hardly_possible_actions():
    certain = Policy(torch.tensor([0.0, -torch.inf]), CorrectSet.from_mask(torch.tensor([True, False])))
    assert coverage(certain, 64) == 1
    rare = Policy(torch.tensor([-1e4, 0.0, 0.0]), CorrectSet.from_mask(torch.tensor([True, False, False])))
    assert coverage(rare, 64) == 0
    assert coverage(rare, 64, conditional=True) == 1
    tiny = Policy(torch.tensor([math.log(1e-20), 0.0], dtype=torch.float64), certain.correct)
    assert_close(coverage(tiny, 64) / 64e-20, torch.tensor(1.0), 1e-12)


def test_coverage_refuses_no_draws_and_contexts_without_a_correct_action():
    policy = Policy(torch.zeros(2, 2), CorrectSet.from_mask(torch.tensor([[True, False], [False, False]])))
    with pytest.raises(ValueError, match="k: expected at least one draw, got 0"):
        coverage(policy[[0]], 0)
    with pytest.raises(ValueError, match="correct: coverage is undefined for a context without a correct action"):
        coverage(policy, 64)
    none = Policy(torch.zeros(1, 2), CorrectSet(torch.zeros(1, 0, dtype=torch.int64), None, 2))
    with pytest.raises(ValueError, match="correct: coverage is undefined for a context without a correct action"):
        coverage(none, 64)


@given(case=cases())
def test_correctness_is_the_mass_of_the_correct_actions(case: Case):
    policy, _ = case.policies()
    expected = [
        float(exact.mass(exact.softmax(logits, exact.PRECISE), correct)) for logits, _, correct in case.contexts()
    ]
    assert_close(correctness(policy), expected, 1e-12)
    assert bool(((correctness(policy) >= 0) & (correctness(policy) <= 1)).all())


@given(case=cases(), size=st.integers(1, 16))
def test_expected_zero_correct_rate_equals_its_definition(case: Case, size: int):
    expected = []
    for logits, _, correct in case.contexts():
        incorrect = exact.mass(exact.softmax(logits, exact.PRECISE), exact.opposite(correct))
        expected.append(float(incorrect**size))
    assert_close(expected_zero_correct_rate(case.policies()[0], size), expected, 1e-12)


def test_expected_zero_correct_rate_refuses_empty_groups():
    policy = Policy(torch.zeros(2), CorrectSet.from_mask(torch.tensor([True, True])))
    with pytest.raises(ValueError, match="group_size: expected at least one draw, got 0"):
        expected_zero_correct_rate(policy, 0)


def test_correctness_never_exceeds_one_where_the_sum_is_rounded_up():
    correct = CorrectSet.from_mask(torch.ones(400, 7, dtype=torch.bool))
    policy = Policy(torch.from_numpy(np.random.default_rng(1).normal(size=(400, 7))).float(), correct)
    assert policy.mass.max() > 1
    assert correctness(policy).max() == 1
