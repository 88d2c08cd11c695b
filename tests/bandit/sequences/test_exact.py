"""The recursions against enumeration, to 1e-10; gradients against autograd."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch
from torch import Tensor

from bandit.engine.sequences import exact
from bandit.engine.sequences.automata import Automata
from bandit.engine.sequences.recursions import SequencePolicy
from tests.bandit.sequences.cases import Case, case
from tests.oracles import exact as definitions
from tests.oracles import sequences as oracle

TOLERANCE = 1e-10


def each_prompt(example: Case):
    """Run, prompt, and its two tables and machine."""
    for run, prompt in itertools.product(range(len(example.rows)), range(len(example.machines))):
        tables = example.table(example.rows[run, prompt]), example.table(example.reference_rows[0, prompt])
        yield run, prompt, *tables, example.machines[prompt]


def by_context(example: Case, gradient: Tensor) -> Tensor:
    """A gradient (S, V, R, B) as tables like the oracle's, (R, B, T, V, V)."""
    return torch.stack([torch.stack([example.table(rows) for rows in run]) for run in gradient.permute(2, 3, 0, 1)])


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_masses_entropies_and_their_gradients_are_those_of_the_enumerated_responses(steps):
    example = case(steps)
    policy, _ = example.policies()
    mass_gradient = by_context(example, policy.mass * policy.log_mass_logit_gradient())
    for run, prompt, table, _, machine in each_prompt(example):
        correct = oracle.verdicts(machine, steps, example.symbols)

        def mass(logits, correct=correct):
            probs = oracle.probabilities(logits, example.symbols, torch)
            return torch.as_tensor(definitions.mass(probs, correct), dtype=torch.float64)

        probs = oracle.probabilities(table, example.symbols, torch)
        members = [p for p in definitions.conditioned(probs, correct) if p > 0]
        expected = {
            "mass": mass(table),
            "1 - Z": 1 - mass(table),
            "H(pi+)": -sum((p * p.log() for p in members), start=torch.zeros((), dtype=torch.float64)),
        }
        found = (policy.mass, policy.log_incorrect_mass.exp(), policy.conditional_entropy())
        for name, values in zip(expected, found, strict=True):
            torch.testing.assert_close(values[run, prompt], expected[name], rtol=0, atol=TOLERANCE, msg=name)
        torch.testing.assert_close(mass_gradient[run, prompt], oracle.autograd(mass, table), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("steps", "group_size"), [(1, 3), (2, 2), (3, 2)])
def test_expected_grpo_is_the_average_over_all_groups(steps, group_size):
    example = case(steps, symbols=2, runs=1)
    policy, _ = example.policies()
    gradients = by_context(example, exact.grpo_gradient(policy, group_size))
    for run, prompt, table, _, machine in each_prompt(example):
        expected = oracle.autograd(partial(oracle.expected_grpo, machine=machine, size=group_size), table)
        torch.testing.assert_close(gradients[run, prompt], expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_divergences_are_those_of_the_enumerated_responses(steps):
    example = case(steps)
    policy, reference = example.policies()
    drifts = exact.drifts(reference, policy)
    conditional = exact.conditional_kl(reference, policy)
    for run, prompt, table, reference_table, machine in each_prompt(example):
        correct = oracle.verdicts(machine, steps, example.symbols)
        probs = [oracle.probabilities(t, example.symbols, torch) for t in (reference_table, table)]
        expected = definitions.decomposed_kl(probs[0], probs[1], correct, torch)
        for name, part, drift in zip(drifts._fields, expected, drifts, strict=True):
            assert abs(float(drift[run, prompt]) - float(part)) < TOLERANCE, name
        expected = definitions.VALUES["cokl"](probs[1], probs[0], correct, torch)
        assert abs(float(conditional[run, prompt]) - float(expected)) < TOLERANCE


@pytest.mark.parametrize("scale", [1, 60])
def test_float32_stays_finite_and_near_float64_at_24_tokens_and_12_symbols(scale):
    example = case(24, symbols=12, states=4, runs=1, prompts=3)
    rows, reference_rows = scale * example.rows, scale * example.reference_rows
    wide = [SequencePolicy(r, example.automata) for r in (rows, reference_rows)]
    narrow = [SequencePolicy(r.float(), example.automata) for r in (rows, reference_rows)]
    for measure in (exact.conditional_kl, lambda *pair: torch.stack(exact.drifts(*pair))):
        torch.testing.assert_close(measure(*narrow), measure(*wide), rtol=1e-4, atol=1e-4)
    gradients = [exact.grpo_gradient(policy, 8) for policy in (narrow[0], wide[0])]
    assert float((gradients[0] - gradients[1]).abs().max()) < 1e-3 * (1 + float(gradients[1].abs().max()))


def test_how_likely_an_incorrect_response_is_stays_precise_at_both_ends():
    """1 - Z where Z is 1 to rounding, or to 1e-9, and Z itself where it is 1e-30."""
    example = case(24, states=1, runs=8, prompts=16)
    certain = Automata(torch.zeros(16, 1, 3, dtype=torch.int64), torch.ones(16, 1, dtype=torch.bool))
    policy = SequencePolicy(example.rows, certain)
    assert (policy.log_mass > 0).any()  # by rounding
    assert (policy.log_incorrect_mass < -30).all()
    leads_to = torch.tensor([[[0, 0, 1], [1, 1, 1]]])
    rows = torch.zeros(1, 1, 1, 3, dtype=torch.float64)
    for logit, rejects in ((-20.0, [True, False]), (-70.0, [False, True])):
        rows[..., 2] = logit
        policy = SequencePolicy(rows, Automata(leads_to, torch.tensor([rejects])))
        rare = definitions.PRECISE.exp(logit) / (2 + definitions.PRECISE.exp(logit))
        expected = definitions.PRECISE.log(rare if rejects[0] else 1 - rare)
        assert float(policy.log_incorrect_mass) == pytest.approx(float(expected), rel=1e-7, abs=0)


def test_the_mass_drift_is_finite_where_correctness_rounds_to_one():
    """The third token is wrong; the policy takes it with probability e^-50 / 2, which 1 does not notice."""
    machine = Automata(torch.tensor([[[0, 0, 1], [1, 1, 1]]]), torch.tensor([[True, False]]))
    policies, shares = [], []
    for logit in (-1.0, -50.0):
        rows = torch.zeros(1, 1, 1, 3, dtype=torch.float64)
        rows[..., 2] = logit
        policies.append(SequencePolicy(rows, machine))
        shares.append(definitions.PRECISE.exp(logit) / (2 + definitions.PRECISE.exp(logit)))
    assert float(policies[1].mass) == 1
    old, new = shares
    log = definitions.PRECISE.log
    expected = old * log(old / new) + (1 - old) * log((1 - old) / (1 - new))
    drift = exact.drifts(*policies)
    assert float(drift.mass) == pytest.approx(float(expected), rel=1e-12)
    assert float(drift.correct + drift.incorrect) == pytest.approx(0, abs=1e-12)


def test_a_response_that_is_all_but_impossible_leaves_everything_finite():
    """No token that a correct response can take is one that the policy ever takes."""
    machine = Automata(torch.tensor([[[0, 1], [1, 1]]]), torch.tensor([[True, False]]))
    rows = torch.zeros(1, 1, 5, 2, dtype=torch.float64)
    rows[..., 0] = -800.0
    policy = SequencePolicy(rows, machine)
    reference = SequencePolicy(torch.zeros_like(rows), machine)
    assert exact.conditional_kl(reference, policy).isfinite().all()
    assert exact.grpo_gradient(policy, 8).isfinite().all()
    assert float(policy.correct.visits.abs().amax()) <= 1
