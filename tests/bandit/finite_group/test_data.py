"""Which inputs, correct sets and groups the finite-group lab sees, against data made anew in NumPy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from bandit.engine.environment import Environment
from bandit.engine.reference import SeedTask, pretrain, seed_task
from bandit.finite_group import train as lab
from bandit.finite_group.train import GroupRun
from cokl import methods
from tests.bandit.finite_group.conftest import TINY
from tests.oracles.worlds import Whereabouts, world

CONFIG = dataclasses.replace(
    TINY, dtype="float64", steps=12, optimizer_steps=(1, 3), recovery_steps=(0, 9), recovery_draws=8
)
SEED = 2


@pytest.fixture(scope="module")
def where() -> Whereabouts:
    return Whereabouts({"task": world(CONFIG.environment, SEED)})


@pytest.fixture
def seen(monkeypatch) -> dict[str, list]:
    """Inputs and parameters of each step, evaluated splits, measured ones with both policies, and reference groups."""
    found: dict[str, list] = {"steps": [], "evaluated": [], "measured": [], "references": []}
    step, averages, measure, take = lab.Trainer.step, lab.averages, lab.measure, lab.SampledObjective.take

    def stepped(self, inputs, gradient):
        found["steps"].append((inputs[0], self.mlp.parameters().clone()))
        return step(self, inputs, gradient)

    def averaged(mlp, split, metrics):
        found["evaluated"].append(split)
        return averages(mlp, split, metrics)

    def measured(config, run, split, clusters, mlp, behavior, noise):
        found["measured"].append((len(found["steps"]), split, clusters, mlp.parameters().clone(), behavior.clone()))
        return measure(config, run, split, clusters, mlp, behavior, noise)

    def taken(self, batch):
        take(self, batch)
        found["references"].append((batch, self.references))

    monkeypatch.setattr(lab.Trainer, "step", stepped)
    monkeypatch.setattr(lab, "averages", averaged)
    monkeypatch.setattr(lab, "measure", measured)
    monkeypatch.setattr(lab.SampledObjective, "take", taken)
    return found


@pytest.fixture(scope="module")
def task() -> SeedTask:
    """Of the seed; made before anything is watched."""
    return seed_task(CONFIG, SEED, pretrain(CONFIG, SEED, "cpu", torch.float64))


def train(task: SeedTask, groups: str, optimizer_steps: int, size: float = 1.0) -> None:
    clusters = Environment(CONFIG.environment, SEED).test_clusters
    with torch.no_grad():
        lab.train(CONFIG, task, clusters, [GroupRun(SEED, methods.get("cokl"), 0.5, groups, size, optimizer_steps)])


@pytest.mark.parametrize("groups", ["exact", "fresh", "cached", "unfiltered"])
def test_it_trains_on_training_inputs_and_is_tested_on_the_others(groups, task, seen, where):
    train(task, groups, 1, float("inf") if groups == "exact" else 1.0)
    assert len(seen["steps"]) == CONFIG.steps
    assert all(where.kinds(inputs) == {("task", "train")} for inputs, _ in seen["steps"])
    tested = [*seen["evaluated"], *(split for _, split, *_ in seen["measured"])]
    assert len(tested) == 3 + (2 if groups in ("fresh", "unfiltered") else 0)
    only = where.worlds["task"]
    for split in tested:
        np.testing.assert_allclose(split.inputs.numpy(), only.inputs["test"], rtol=0, atol=1e-12)
        np.testing.assert_array_equal(split.correct.mask.numpy(), where.correct(split.inputs))
    for _, _, clusters, *_ in seen["measured"]:
        np.testing.assert_array_equal(clusters.numpy(), only.clusters["test"])


@pytest.mark.parametrize(("groups", "always"), [("fresh", True), ("cached", True), ("unfiltered", False)])
def test_the_filtered_arms_hold_a_correct_response_and_the_unfiltered_one_need_not(groups, always, task, seen, where):
    train(task, groups, 1)
    only, right = where.worlds["task"], []
    for batch, references in seen["references"]:
        masks = only.correct[only.clusters["train"][batch.numpy()]]
        right.append(np.take_along_axis(masks, references.actions[0].numpy(), -1).any(-1))
        np.testing.assert_array_equal(references.rewards[0].numpy().any(-1), right[-1])
    assert len(right) == CONFIG.steps
    assert np.concatenate(right).all() == always
    assert np.concatenate(right).any()


@pytest.mark.parametrize("optimizer_steps", [1, 3])
def test_recovery_is_measured_with_the_policy_that_drew(optimizer_steps, task, seen):
    train(task, "fresh", optimizer_steps)
    measured = [at for at, *_ in seen["measured"]]
    assert measured == [0 + optimizer_steps - 1, 9 + optimizer_steps - 1]
    for at, _, _, policy, behavior in seen["measured"]:
        drew, now = seen["steps"][at - (optimizer_steps - 1)][1], seen["steps"][at][1]
        torch.testing.assert_close(behavior, drew, rtol=0, atol=0)
        torch.testing.assert_close(policy, now, rtol=0, atol=0)
        assert torch.equal(drew, now) == (optimizer_steps == 1)


def test_off_policy_the_measured_effect_is_that_of_the_behaviour_policys_groups(task):
    """Two policies that differ in the correctness mass alone: the measured mean lies at one prediction, not both."""
    from bandit.engine.networks import StackedMLP
    from bandit.engine.reference import layer_sizes

    only = world(CONFIG.environment, SEED)
    config = dataclasses.replace(CONFIG, recovery_draws=400)
    run = GroupRun(SEED, methods.get("cokl"), 1.0, "fresh", 1.0, 3)
    now = StackedMLP(layer_sizes(config), task.parameters[None])
    drew = now.parameters().clone()
    drew[:, -CONFIG.environment.actions :] += 2.0 * torch.from_numpy(only.correct.mean(0))  # biases of the last layer
    clusters = torch.from_numpy(only.clusters["test"])
    with torch.no_grad():
        rows = lab.measure(config, run, task.test, clusters, now, drew, np.random.default_rng(0))
    apart = (rows["predicted"] - rows["predicted_at_rollout"]).abs() / rows["standard_error"]
    assert apart.max() > 5
    masses = torch.zeros(2, len(rows))
    for place, parameters in enumerate((task.parameters[None], drew)):
        probs = StackedMLP(layer_sizes(config), parameters).forward(task.test.inputs[None])[0].softmax(-1)
        mass = (probs * task.test.correct.mask).sum(-1)
        masses[place] = torch.stack([mass[clusters == cluster].mean() for cluster in rows["cluster"]])
    np.testing.assert_allclose(rows["p_correct"], masses[0], rtol=1e-5)
    # R_1'(Z)'s factor (1 - Z): the gate closes as the behaviour policy becomes more correct.
    assert ((rows["predicted_at_rollout"] < rows["predicted"]).to_numpy() == (masses[1] > masses[0]).numpy()).all()
