"""Training on the new task against plain loops with autograd, and runs that do not touch each other."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from bandit.engine.networks import StackedMLP
from bandit.engine.reference import Split
from bandit.engine.two_tasks.config import METHODS
from bandit.engine.two_tasks.plan import ShiftRun, kl_prompts
from bandit.engine.two_tasks.tasks import ShiftStream, TwoTasks
from bandit.shift.config import ShiftConfig
from bandit.shift.train import ShiftTrainer, layer_sizes, shift_task
from cokl import methods
from tests.oracles import exact
from tests.oracles import shift as oracle

METRICS = [
    "prior_correct",
    "new_correct",
    "prior_pass_at_k",
    "conditional_kl",
    "mass_drift",
    "correct_drift",
    "incorrect_drift",
    "zero_correct_rate",
]


@pytest.fixture(scope="module")
def task() -> TwoTasks:
    """The miniature's only reported seed."""
    from tests.bandit.shift.conftest import TINY_SHIFT

    return shift_task(TINY_SHIFT, 0, ShiftTrainer(TINY_SHIFT).base_parameters(0))


def network(config: ShiftConfig, parameters: Tensor) -> torch.nn.Sequential:
    """The MLP as PyTorch's own modules."""
    sizes = layer_sizes(config)
    layers: list[torch.nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        linear = torch.nn.Linear(fan_in, fan_out, dtype=torch.float64)
        weights, parameters = parameters[: fan_in * fan_out], parameters[fan_in * fan_out :]
        biases, parameters = parameters[:fan_out], parameters[fan_out:]
        linear.weight.data, linear.bias.data = weights.view(fan_in, fan_out).T.clone(), biases.clone()
        layers += [linear, torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def flags(split: Split) -> list[list[bool]]:
    return split.correct.mask.tolist()


def naive_metrics(config: ShiftConfig, task: TwoTasks, buffer: Split, mlp: torch.nn.Module) -> list[float]:
    """The metrics of one run as means over Python loops, in the order of METRICS."""

    def policies(split: Split) -> Iterator[tuple[list[float], list[float], list[bool]]]:
        probs = mlp(split.inputs).softmax(-1).tolist()
        yield from zip(probs, split.reference_log_probs.exp().tolist(), flags(split), strict=True)

    prior = []
    for policy, reference, correct in policies(task.prior_test):
        drifts = exact.decomposed_kl(reference, policy, correct, exact.PRECISE)
        solved = 1 - (1 - exact.mass(policy, correct)) ** config.pass_draws
        kl = exact.cokl(policy, reference, correct, exact.PRECISE)
        prior.append([exact.mass(policy, correct), solved, kl, *drifts])
    means = np.array(prior, dtype=float).mean(0).tolist()
    new = np.mean([exact.mass(policy, correct) for policy, _, correct in policies(task.new_test)])
    zero = np.mean([(1 - exact.mass(policy, correct)) ** config.group_size for policy, _, correct in policies(buffer)])
    return [means[0], float(new), *means[1:], float(zero)]


def naive_run(config: ShiftConfig, task: TwoTasks, run: ShiftRun) -> pd.DataFrame:
    """One run on the same minibatches and random numbers: modules, autograd, PyTorch's clipping and Adam."""
    mlp = network(config, task.parameters)
    rate = config.learning_rate if config.new_learning_rate is None else config.new_learning_rate
    adam = torch.optim.Adam(mlp.parameters(), lr=rate, betas=config.adam_betas, eps=config.adam_epsilon)
    buffer = task.buffer
    if run.method.filtered:
        kept = torch.tensor([any(group) for group in buffer.responses.rewards[0].tolist()])
        buffer = dataclasses.replace(
            buffer,
            prompts=Split(
                buffer.prompts.inputs[kept], buffer.prompts.reference_log_probs[kept], buffer.prompts.correct[kept]
            ),
            responses=buffer.responses[kept],
        )
    new = ShiftTrainer(config).rl_prompts(task.new_train, task.seed, ShiftStream.NEW_BATCHES)
    kl = ShiftTrainer(config).buffer_prompts(buffer, task.seed, max(run.kl_prompts, 1))
    rows = [naive_metrics(config, task, buffer.prompts, mlp)]
    for step in range(config.steps):
        if step % config.optimizer_steps == 0:
            minibatches = [next(new), next(kl)]
            behavior = [mlp(minibatch.prompts.inputs).log_softmax(-1).detach() for minibatch in minibatches]
        batches = []
        for minibatch, old in zip(minibatches, behavior, strict=True):
            log_probs = mlp(minibatch.prompts.inputs).log_softmax(-1)
            batches.append(
                [
                    {
                        "log_probs": log_probs[place],
                        "behavior": old[place],
                        "reference": minibatch.prompts.reference_log_probs[place],
                        "correct": minibatch.prompts.correct.mask[place].tolist(),
                        "fresh": [oracle.inverse_cdf(old[place].exp().tolist(), u) for u in uniforms],
                        "cached": [] if minibatch.cached is None else minibatch.cached.actions[0, place].tolist(),
                    }
                    for place, uniforms in enumerate(minibatch.uniforms.tolist())
                ]
            )
        size, epsilon_is = config.group_size, config.epsilon_is
        loss = oracle.joint_loss(run.mode, run.method.name, run.beta, batches[0], batches[1], size, epsilon_is)
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(mlp.parameters(), config.max_gradient_norm)
        adam.step()
        rows.append(naive_metrics(config, task, buffer.prompts, mlp))
    return pd.DataFrame(rows, columns=METRICS)


@pytest.mark.parametrize("mode", ["exact", "sampled"])
@pytest.mark.parametrize("name", METHODS)
def test_training_equals_a_plain_loop_with_autograd(name, mode, task, tiny_shift):
    """Four steps, two on each batch of rollouts: every metric after each step, for two coefficients in one stack."""
    config = dataclasses.replace(tiny_shift, eval_interval=1)
    method = methods.get(name)
    runs = [ShiftRun(0, mode, method, beta, kl_prompts(config.kl_groups, method)) for beta in (0.3, 3.0)]
    with torch.no_grad():
        table = ShiftTrainer(config).train(task, runs)
    for run in runs:
        got = table[table["beta"] == run.beta].reset_index(drop=True)
        assert got["step"].tolist() == [0, 1, 2, 3, 4]
        pd.testing.assert_frame_equal(got[METRICS], naive_run(config, task, run), rtol=1e-8, atol=1e-10)
        assert np.abs(np.diff(got["new_correct"].to_numpy())).max() > 1e-3


def test_the_new_task_can_have_a_learning_rate_of_its_own(task, tiny_shift):
    """The base model stays the one of `learning_rate`."""
    config = dataclasses.replace(tiny_shift, eval_interval=1, new_learning_rate=0.02)
    run = ShiftRun(0, "sampled", methods.get("cokl"), 0.3, 4)
    got = ShiftTrainer(config).train(task, [run])
    pd.testing.assert_frame_equal(got[METRICS], naive_run(config, task, run), rtol=1e-8, atol=1e-10)
    assert torch.equal(ShiftTrainer(config).base_parameters(0), ShiftTrainer(tiny_shift).base_parameters(0))


@pytest.mark.parametrize("mode", ["exact", "sampled"])
@pytest.mark.parametrize("name", ["cokl_floor", "reverse_kl"])
def test_a_run_does_not_depend_on_its_neighbours(name, mode, task, tiny_shift):
    runs = [ShiftRun(0, mode, methods.get(name), beta, 4) for beta in (0.01, 1.0, 30.0)]
    together = ShiftTrainer(tiny_shift).train(task, runs).sort_values(["beta", "step"]).reset_index(drop=True)
    alone = pd.concat([ShiftTrainer(tiny_shift).train(task, [run]) for run in runs], ignore_index=True)
    pd.testing.assert_frame_equal(together, alone, rtol=1e-10, atol=1e-12)


def test_the_base_model_has_not_drifted_and_knows_the_prior_task_better_than_before(task, tiny_shift):
    rows = ShiftTrainer(tiny_shift).base_rows(task)
    assert rows["mode"].tolist() == ["exact", "sampled"]
    drifts = rows[["conditional_kl", "mass_drift", "correct_drift", "incorrect_drift"]].to_numpy()
    assert np.abs(drifts).max() < 1e-12
    untrained = dataclasses.replace(tiny_shift, prior_steps=0)
    before = ShiftTrainer(untrained).base_rows(shift_task(untrained, 0, ShiftTrainer(untrained).base_parameters(0)))
    assert rows["prior_correct"][0] > before["prior_correct"][0]


def test_drifts_add_up_to_the_full_kl(task, tiny_shift):
    from bandit.engine.exact import averages
    from bandit.engine.networks import StackedMLP
    from cokl.regularizers.forward_kl import ForwardKL

    mlp = StackedMLP(layer_sizes(tiny_shift), 1.5 * task.parameters[None])
    metrics = ShiftTrainer(tiny_shift).evaluate(task, task.buffer, mlp)
    (full,) = averages(mlp, task.prior_test, lambda policy, base: {"kl": ForwardKL().value(policy, base)})["kl"]
    total = sum(metrics[name][0] for name in ("mass_drift", "correct_drift", "incorrect_drift"))
    assert full > 1e-3
    assert total == pytest.approx(full, rel=1e-10)


def test_scores_are_taken_at_the_evaluations_temperature_and_drifts_are_not(task, tiny_shift):
    mlp = StackedMLP(layer_sizes(tiny_shift), task.parameters[None])
    cool = dataclasses.replace(tiny_shift, evaluation_temperature=0.5)
    found, usual = (ShiftTrainer(config).evaluate(task, task.buffer, mlp) for config in (cool, tiny_shift))
    for name, split in (("prior_correct", task.prior_test), ("new_correct", task.new_test)):
        shares = []
        for logits, right in zip(mlp.forward(split.inputs[None])[0], split.correct.mask, strict=True):
            weights = [float(logit / 0.5 - logits.max() / 0.5) for logit in logits]
            powers = [np.exp(weight) for weight in weights]
            shares.append(sum(power for power, ok in zip(powers, right, strict=True) if ok) / sum(powers))
        assert found[name] == pytest.approx([np.mean(shares)])
        assert found[name] != pytest.approx(usual[name], abs=1e-3)
    assert found["prior_pass_at_k"] != pytest.approx(usual["prior_pass_at_k"], abs=1e-5)
    for name in METRICS[3:]:
        assert found[name] == usual[name]
