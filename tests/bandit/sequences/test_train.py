"""Training on sequences: what couples no runs, what the options do, and the metrics against enumeration."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from bandit.engine.networks import StackedMLP
from bandit.engine.sequences.automata import Automata, decided_early
from bandit.engine.sequences.recursions import SequencePolicy
from bandit.engine.two_tasks.plan import ShiftRun
from bandit.engine.two_tasks.tasks import ShiftStream
from bandit.engine.two_tasks.train import JointLoss
from bandit.sequences.config import SequenceConfig
from bandit.sequences.train import (
    SequenceTrainer,
    families,
    layer_sizes,
    network_inputs,
    planned_runs,
    rows,
    sequence_task,
)
from cokl import methods
from cokl.support.errors import InputError
from tests.bandit.sequences.cases import case
from tests.oracles import exact as definitions
from tests.oracles import sequences as oracle

TINY = SequenceConfig(
    methods=("none", "cokl"),
    betas=(0.1, 1.0),
    seeds=1,
    selection_seeds=1,
    length=3,
    symbols=3,
    forbidden=1,
    clusters=3,
    input_dim=4,
    train_inputs=40,
    test_inputs=6,
    steps=4,
    eval_interval=2,
    batch_size=5,
    group_size=2,
    reference_group_size=3,
    buffer_size=12,
    kl_groups=4,
    hidden=(8,),
    pretrain_steps=20,
    prior_steps=3,
)


@pytest.fixture(scope="module")
def task():
    with torch.no_grad():
        return sequence_task(TINY, 0, SequenceTrainer(TINY).base_parameters(0))


def test_each_context_enters_the_network_as_its_position_and_last_token():
    inputs = torch.tensor([[7.0, 8.0, 9.0, 6.0]])
    found = network_inputs(TINY, inputs)[0]
    later = [(position, last) for position in (1, 2) for last in range(3)]
    expected: list[tuple[int, int | None]] = [(0, None), *later]
    assert len(found) == len(expected)
    for row, (position, last) in zip(found, expected, strict=True):
        codes = [float(place == position) for place in range(3)]
        codes += [float(place == last) for place in range(3)] + [float(last is None)]
        assert row.tolist() == [7.0, 8.0, 9.0, 6.0, *codes]


def test_labels_are_next_tokens_given_that_the_response_is_correct():
    family, _ = families(dataclasses.replace(TINY, length=2), 3)
    for labels, transitions, accepting in zip(
        family.labels, family.train.automata.transitions, family.train.automata.accepting, strict=True
    ):
        machine = transitions.tolist(), accepting.tolist()
        assert labels.sum(-1).tolist() == pytest.approx([1.0] * len(labels), abs=1e-5)
        for token in range(3):
            possible = any(oracle.accepts(machine, (token, then)) for then in range(3))
            assert (labels[0, token] > 0) == possible  # what can only end incorrect is never a label


@pytest.mark.parametrize("deciding", [1, 2, 4])
def test_a_verdict_stands_after_the_deciding_tokens(deciding):
    """Of machines that can change their minds later, so that reading on would be seen."""
    machines = case(4, prompts=6, seed=2).machines
    automata = decided_early(Automata(*(torch.tensor(part) for part in zip(*machines, strict=True))), deciding)
    responses = list(itertools.product(range(3), repeat=4))
    expected = [[oracle.accepts(machine, response[:deciding]) for response in responses] for machine in machines]
    assert automata.accept(torch.tensor(responses).expand(6, -1, -1)).tolist() == expected
    read_on = [[oracle.accepts(machine, response) for response in responses] for machine in machines]
    assert (read_on == expected) == (deciding == 4)


def test_style_is_style_on_the_prior_task_alone():
    plain, styled = (families(dataclasses.replace(TINY, deciding=deciding), 3) for deciding in (None, 1))
    responses = torch.cartesian_prod(*[torch.arange(3)] * 3).expand(40, -1, -1)
    kept = [one.train.automata.accept(responses) for one in styled]
    assert torch.equal(kept[1], plain[1].train.automata.accept(responses))
    assert (kept[0].view(40, 3, 9).all(-1) | ~kept[0].view(40, 3, 9).any(-1)).all()  # the first token alone decides
    assert not torch.equal(kept[0], plain[0].train.automata.accept(responses))


def test_no_more_tokens_decide_than_there_are():
    with pytest.raises(InputError, match="deciding: expected at most 3, the length, got 4"):
        dataclasses.replace(TINY, deciding=4)


@pytest.mark.parametrize("mode", ["exact", "sampled"])
@pytest.mark.parametrize("name", ["none", "cokl", "cokl_floor", "jensen_shannon"])
def test_a_run_does_not_depend_on_its_neighbours_in_the_stack(task, mode, name):
    kl = 0 if name == "none" else 2
    runs = [ShiftRun(0, mode, methods.get(name), beta, kl) for beta in (0.1, 1.0)]
    with torch.no_grad():
        together = SequenceTrainer(TINY).train(task, runs).sort_values(["beta", "step"])
        alone = [SequenceTrainer(TINY).train(task, [run]) for run in runs]
    for column in together.columns.drop(["mode", "method"]):
        separate = np.concatenate([table[column] for table in alone])
        np.testing.assert_allclose(together[column], separate, rtol=2e-4, atol=1e-5)


def moved(task) -> StackedMLP:
    """A network away from the base model, where CoKL's gradient is zero."""
    return StackedMLP(layer_sizes(TINY), 1.5 * task.parameters[None])


def gradient(task, config, mode, method, beta):
    trainer = SequenceTrainer(config)
    loss = JointLoss(
        trainer,
        trainer.objective(mode, method, torch.tensor([beta], dtype=torch.float64)),
        next(trainer.rl_prompts(task.new_train, 0, ShiftStream.NEW_BATCHES)),
        next(trainer.buffer_prompts(task.buffer.used_by(method), 0, 4)),
    )
    mlp = moved(task)
    return loss.logit_gradient(mlp.forward(loss.inputs())).double()


def test_the_new_task_can_have_a_learning_rate_of_its_own(task):
    """The base model stays the one of `learning_rate`."""
    runs = [ShiftRun(0, "sampled", methods.get("cokl"), 0.3, 2)]
    alone = dataclasses.replace(TINY, new_learning_rate=0.02)
    pd.testing.assert_frame_equal(
        SequenceTrainer(alone).train(task, runs),
        SequenceTrainer(dataclasses.replace(TINY, learning_rate=0.02)).train(task, runs),
    )
    assert not SequenceTrainer(alone).train(task, runs).equals(SequenceTrainer(TINY).train(task, runs))
    assert torch.equal(SequenceTrainer(alone).base_parameters(0), SequenceTrainer(TINY).base_parameters(0))
    with pytest.raises(InputError, match="new_learning_rate: expected a finite number > 0"):
        dataclasses.replace(TINY, new_learning_rate=0.0)


@pytest.mark.parametrize("mode", ["exact", "sampled"])
def test_a_token_mean_is_a_coefficient_divided_by_the_length(task, mode):
    mean = dataclasses.replace(TINY, token_reduction="mean")
    method = methods.get("cokl")
    found = gradient(task, mean, mode, method, 3.0)
    torch.testing.assert_close(found, gradient(task, TINY, mode, method, 1.0))
    assert not torch.allclose(found, gradient(task, TINY, mode, method, 3.0))


def test_the_exact_joint_loss_is_the_mean_over_either_tasks_prompts(task):
    method, beta = methods.get("cokl"), 0.5
    found = gradient(task, TINY, "exact", method, beta)[0]
    new = next(SequenceTrainer(TINY).rl_prompts(task.new_train, 0, ShiftStream.NEW_BATCHES)).prompts
    buffer = next(SequenceTrainer(TINY).buffer_prompts(task.buffer.used_by(method), 0, 4)).prompts
    mlp = moved(task)

    def table(row):
        found = torch.zeros(3, 3, 3, dtype=torch.float64)
        found[0, 0] = row[0]
        found[1:] = row[1:].view(2, 3, 3)
        return found

    def machine(prompts, index):
        return prompts.automata.transitions[index].tolist(), prompts.automata.accepting[index].tolist()

    expected = []
    logits = rows(TINY, mlp, new.inputs).double()[0].clone()
    for index, row in enumerate(logits):
        slopes = oracle.autograd(partial(oracle.expected_grpo, machine=machine(new, index), size=2), table(row))
        expected.append(slopes / len(logits))
    logits = rows(TINY, mlp, buffer.inputs).double()[0].clone()
    for index, row in enumerate(logits):
        reference = table(buffer.reference_rows[index].double())
        automaton = machine(buffer, index)

        def divergence(x, reference=reference, automaton=automaton):
            return oracle.value(definitions.cokl, x, reference, automaton, torch)

        slopes = oracle.autograd(divergence, table(row))
        expected.append(beta * slopes / len(logits))
    contexts = len(found)
    for index, slopes in enumerate(expected):
        torch.testing.assert_close(
            table(found[7 * index : 7 * index + 7]) / contexts, slopes, rtol=1e-5, atol=1e-7, msg=str(index)
        )


def test_metrics_are_means_over_prompts_of_enumerated_responses(task):
    mlp = moved(task)
    found = SequenceTrainer(TINY).evaluate(task, task.buffer, mlp)
    base = StackedMLP(layer_sizes(TINY), task.parameters[None])
    sums = dict.fromkeys(found, 0.0)
    for prompts, own in ((task.prior_test, "prior"), (task.new_test, "new"), (task.buffer.prompts, "buffer")):
        policy, reference = (
            SequencePolicy(rows(TINY, model, prompts.inputs).clone(), prompts.automata) for model in (mlp, base)
        )
        for index in range(len(prompts.inputs)):
            machine = prompts.automata.transitions[index].tolist(), prompts.automata.accepting[index].tolist()
            probs, old = (_probabilities(model.log_probs[:, :, 0, index]) for model in (policy, reference))
            correct = oracle.verdicts(machine, 3, 3)
            mass = definitions.mass(probs, correct)
            part = 1 / len(prompts.inputs)
            if own == "buffer":
                sums["zero_correct_rate"] += part * (1 - mass) ** 2
                continue
            sums[f"{own}_correct"] += part * mass
            sums[f"{own}_pass_at_k"] += part * (1 - (1 - mass) ** 8)
            if own == "new":
                sums["new_kl"] += part * definitions.kl(old, probs, _FLOATS)
                continue
            drifts = definitions.decomposed_kl(old, probs, correct, _FLOATS)
            values = dict(zip(("mass_drift", "correct_drift", "incorrect_drift"), drifts, strict=True))
            values["conditional_kl"] = definitions.cokl(probs, old, correct, _FLOATS)
            values["entropy"] = -definitions.entropy(probs, old, correct, _FLOATS)
            conditioned = definitions.conditioned(probs, correct)
            values["conditional_entropy"] = -definitions.entropy(conditioned, old, correct, _FLOATS)
            for name, value in values.items():
                sums[name] += part * value
    assert {name: values[0] for name, values in found.items()} == pytest.approx(sums, rel=1e-9, abs=1e-9)


class _FLOATS:
    log, inf = np.log, np.inf


def _probabilities(log_probs) -> list[float]:
    """Of all responses, from one prompt's next-token log-probabilities (S, V)."""
    table = torch.zeros(3, 3, 3, dtype=torch.float64)
    table[0, 0], table[1:] = log_probs[0], log_probs[1:].view(2, 3, 3)
    return [float(p) for p in oracle.probabilities(table, 3, torch)]


def test_what_has_no_expectation_is_trained_in_samples_only_and_refused_alone():
    long = dataclasses.replace(TINY, methods=("none", "jensen_shannon"), length=24, symbols=12)
    assert {(run.mode, run.method.name) for run in planned_runs(long)} == {
        ("exact", "none"),
        ("sampled", "none"),
        ("sampled", "jensen_shannon"),
    }
    with pytest.raises(InputError, match=r"jensen_shannon: .* 12\^24; use --mode sampled"):
        planned_runs(dataclasses.replace(long, mode="exact"))
    short = dataclasses.replace(long, length=3, mode="exact")
    assert {run.method.name for run in planned_runs(short)} == {"none", "jensen_shannon"}


def test_seeds_start_where_they_are_asked_to_and_never_meet_the_selection_seeds():
    config = dataclasses.replace(TINY, first_seed=100, seeds=2)
    assert config.roles == {100: "report", 101: "report", 1000: "selection"}
    assert list(dataclasses.replace(TINY, first_seed=998, seeds=2).roles)[:2] == [998, 999]
    with pytest.raises(InputError, match="seeds: expected at most 1000"):
        dataclasses.replace(TINY, first_seed=999, seeds=2)


def test_a_coefficient_of_zero_is_refused():
    with pytest.raises(InputError, match="betas: expected finite coefficients > 0"):
        dataclasses.replace(TINY, betas=(0.0, 0.1))
