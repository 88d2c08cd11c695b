"""The recursions against enumeration, to 1e-10; their gradients against autograd and finite differences."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch
from torch import Tensor

from bandit.engine.sequences import exact
from bandit.engine.sequences.automata import Automata
from bandit.engine.sequences.recursions import SequencePolicy, value
from cokl import methods, regularizers
from cokl.floor import floor_logit_gradient, floor_value
from cokl.policy import CorrectSet, Policy
from cokl.regularizers import Regularizer, register
from tests.bandit.sequences.cases import Case, case
from tests.oracles import exact as definitions
from tests.oracles import sequences as oracle

TOLERANCE = 1e-10
RESTRICTED = "correct_reverse_kl_restricted"
VARIANTS = [*regularizers.names(), RESTRICTED]


def variant(name: str) -> Regularizer:
    if name == RESTRICTED:
        return regularizers.with_options("correct_reverse_kl", ["correct_reverse_kl.form=restricted"])
    return regularizers.get(name)


def each_prompt(example: Case):
    """Run, prompt, and its two tables and machine."""
    for run, prompt in itertools.product(range(len(example.rows)), range(len(example.machines))):
        tables = example.table(example.rows[run, prompt]), example.table(example.reference_rows[0, prompt])
        yield run, prompt, *tables, example.machines[prompt]


def by_context(example: Case, gradient: Tensor) -> Tensor:
    """A gradient (S, V, R, B) as tables like the oracle's, (R, B, T, V, V)."""
    return torch.stack([torch.stack([example.table(rows) for rows in run]) for run in gradient.permute(2, 3, 0, 1)])


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_every_value_and_gradient_is_that_of_the_enumerated_responses(name, steps):
    example = case(steps, runs=1 if steps == 4 else 2, prompts=2)
    policy, reference = example.policies()
    values = exact.regularizer_value(variant(name), policy, reference)
    gradients = by_context(example, exact.regularizer_gradient(variant(name), policy, reference))
    for run, prompt, table, reference_table, machine in each_prompt(example):

        def expected(logits, reference_table=reference_table, machine=machine):
            found = oracle.value(definitions.VALUES[name], logits, reference_table, machine, torch)
            return torch.as_tensor(found, dtype=torch.float64)

        torch.testing.assert_close(values[run, prompt], expected(table), rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(gradients[run, prompt], oracle.autograd(expected, table), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", VARIANTS)
def test_gradients_are_finite_differences_with_sixty_digits(name):
    example = case(2, symbols=2, runs=1, prompts=2)
    policy, reference = example.policies()
    gradient = by_context(example, exact.regularizer_gradient(variant(name), policy, reference))[0, 1]
    precise = definitions.PRECISE
    step = precise.mpf("1e-20")
    tables = [example.table(rows[0, 1]).tolist() for rows in (example.rows, example.reference_rows)]
    for place in [(0, 0, 0), (0, 0, 1), *itertools.product([1], range(2), range(2))]:
        ends = []
        for offset in (step, -step):
            moved = [[list(map(precise.mpf, row)) for row in rows] for rows in tables[0]]
            moved[place[0]][place[1]][place[2]] += offset
            reference_table = [[list(map(precise.mpf, row)) for row in rows] for rows in tables[1]]
            ends.append(oracle.value(definitions.VALUES[name], moved, reference_table, example.machines[1], precise))
        assert abs(float((ends[0] - ends[1]) / (2 * step)) - float(gradient[place])) < TOLERANCE


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
            "H(pi)": -sum(p * p.log() for p in probs),
            "H(pi+)": -sum((p * p.log() for p in members), start=torch.zeros((), dtype=torch.float64)),
        }
        found = (policy.mass, policy.log_incorrect_mass.exp(), policy.entropy(), policy.conditional_entropy())
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


def listed(example: Case, run: int, rows: Tensor) -> Policy:
    """A policy over the enumerated responses, (1, B, A)."""
    tables = [example.table(prompt) for prompt in rows[min(run, len(rows) - 1)]]
    log_probs = [torch.stack(oracle.probabilities(table, example.symbols, torch)).log() for table in tables]
    flags = [oracle.verdicts(machine, example.steps, example.symbols) for machine in example.machines]
    return Policy(torch.stack(log_probs)[None], CorrectSet.from_mask(torch.tensor(flags)[None]))


def test_the_floor_is_that_of_the_enumerated_responses():
    example = case(3, seed=4)
    policy, reference = example.policies()
    method = methods.get("cokl_floor")
    found = exact.method_gradient(method, policy, reference, torch.tensor([0.0, 0.0], dtype=torch.float64))
    gates = 0
    for run in range(2):
        rows = example.rows[run : run + 1].clone().requires_grad_()
        target = listed(example, 0, example.reference_rows)
        total = floor_value(listed(example, 0, rows), target).sum()
        gates += bool(floor_logit_gradient(listed(example, 0, rows.detach()), target).any())
        expected = torch.autograd.grad(total, rows)[0][0]
        torch.testing.assert_close(found[:, :, run].permute(2, 0, 1), expected, rtol=0, atol=TOLERANCE)
    assert gates  # of which at least one is open


def test_the_decomposed_kl_is_that_of_the_enumerated_responses():
    example = case(3)
    policy, reference = example.policies()
    drifts = exact.drifts(reference, policy)
    for run, prompt, table, reference_table, machine in each_prompt(example):
        correct = oracle.verdicts(machine, 3, example.symbols)
        probs = [oracle.probabilities(t, example.symbols, torch) for t in (reference_table, table)]
        expected = definitions.decomposed_kl(probs[0], probs[1], correct, torch)
        for name, part, drift in zip(drifts._fields, expected, drifts, strict=True):
            assert abs(float(drift[run, prompt]) - float(part)) < TOLERANCE, name


def test_a_regularizer_that_knows_no_recursion_is_taken_over_all_responses():
    @register
    class Squared(Regularizer):
        name = "squared_distance"
        label = "Squared distance"

        def value(self, policy, reference):
            return (policy.probs - reference.probs).square().sum(-1)

    try:
        example = case(2)
        policy, reference = example.policies()
        gradients = by_context(example, exact.regularizer_gradient(Squared(), policy, reference))
        for run, prompt, table, reference_table, _ in each_prompt(example):
            target = torch.stack(oracle.probabilities(reference_table, 3, torch))

            def distance(logits, target=target):
                return (torch.stack(oracle.probabilities(logits, 3, torch)) - target).square().sum()

            expected = oracle.autograd(distance, table)
            torch.testing.assert_close(gradients[run, prompt], expected, rtol=0, atol=TOLERANCE)
    finally:
        regularizers._registry.pop("squared_distance")


def test_only_what_has_no_recursion_is_limited_to_responses_that_can_be_listed():
    limited = {name for name in regularizers.names() if not exact.is_exact(methods.get(name), 24, 12)}
    assert limited == {"jensen_shannon"}
    assert all(exact.is_exact(methods.get(name), 4, 12) for name in regularizers.names())


@pytest.mark.parametrize("scale", [1, 60])
def test_float32_stays_finite_and_near_float64_at_24_tokens_and_12_symbols(scale):
    example = case(24, symbols=12, states=4, runs=1, prompts=3)
    rows, reference_rows = scale * example.rows, scale * example.reference_rows
    wide = [SequencePolicy(r, example.automata) for r in (rows, reference_rows)]
    narrow = [SequencePolicy(r.float(), example.automata) for r in (rows, reference_rows)]
    for name in regularizers.names():
        form = regularizers.get(name).log_linear()
        if form is not None:
            found, expected = value(form, *narrow), value(form, *wide)
            torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
            gradients = [exact.recursions.gradient(form, *pair) for pair in (narrow, wide)]
            size = 1 + float(gradients[1].abs().max())
            assert float((gradients[0] - gradients[1]).abs().max()) < 1e-3 * size, name


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
    for name in ("cokl", "correct_reverse_kl", "correct_forward_kl", "cokl_without_term1"):
        assert exact.regularizer_gradient(variant(name), policy, reference).isfinite().all(), name
        assert exact.regularizer_value(variant(name), policy, reference).isfinite().all(), name
    assert float(policy.correct.visits.abs().amax()) <= 1
