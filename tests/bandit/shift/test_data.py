"""Which inputs, labels, splits and tasks each phase of the task-shift lab sees, against data made anew in NumPy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from bandit.engine.two_tasks import train as trainer
from bandit.engine.two_tasks.plan import ShiftRun
from bandit.shift import train as lab
from bandit.shift.train import shift_task
from cokl import methods
from tests.bandit.shift.conftest import TINY_SHIFT
from tests.oracles.worlds import Whereabouts, two_worlds

ENVIRONMENT = dataclasses.replace(TINY_SHIFT.environment, correct_mass=0.2, actions=8)
# One cached response a prompt: the filter has something to leave out.
CONFIG = dataclasses.replace(
    TINY_SHIFT, environment=ENVIRONMENT, cluster_overlap=0.4, correct_overlap=0.5, reference_group_size=1, prior_steps=6
)
SEED = 3


@pytest.fixture(scope="module")
def where() -> Whereabouts:
    return Whereabouts(two_worlds(ENVIRONMENT, SEED, 0.4, 1))


@pytest.fixture
def seen(monkeypatch) -> dict[str, list]:
    """What training and evaluation are given: minibatches of pretraining with labels, of RL, and evaluated splits."""
    found: dict[str, list] = {"pretraining": [], "rl": [], "evaluated": []}
    cross_entropy, joint_loss, averages = trainer.cross_entropy_gradient, trainer.JointLoss.__init__, lab.averages
    step = trainer.Trainer.step

    def labelled(logits, labels):
        found["pretraining"][-1][1] = labels
        return cross_entropy(logits, labels)

    def stepped(self, inputs, gradient):
        found["pretraining"].append([inputs[0], None])
        return step(self, inputs, gradient)

    def joined(self, lab_trainer, objective, new, kl):
        found["rl"].append((new, kl))
        joint_loss(self, lab_trainer, objective, new, kl)

    def averaged(mlp, split, metrics):
        found["evaluated"].append(split)
        return averages(mlp, split, metrics)

    monkeypatch.setattr(trainer, "cross_entropy_gradient", labelled)
    monkeypatch.setattr(trainer.Trainer, "step", stepped)
    monkeypatch.setattr(trainer.JointLoss, "__init__", joined)
    monkeypatch.setattr(lab, "averages", averaged)
    return found


def masks(minibatch) -> np.ndarray:
    return minibatch.prompts.correct.mask.numpy()


def test_the_base_model_learns_both_tasks_labels_then_the_prior_tasks_rewards(seen, where):
    with torch.no_grad():
        lab.ShiftTrainer(CONFIG).base_parameters(SEED)
    labelled = [(inputs, labels) for inputs, labels in seen["pretraining"] if labels is not None]
    assert len(labelled) == CONFIG.pretrain_steps
    inputs, labels = (np.concatenate([part.numpy() for part in parts]) for parts in zip(*labelled, strict=True))
    assert where.kinds(inputs) == {("prior", "train"), ("new", "train")}
    np.testing.assert_allclose(labels, where.oracle(inputs), rtol=1e-12)
    assert len(seen["rl"]) == CONFIG.prior_steps // CONFIG.optimizer_steps
    for minibatch, kl in seen["rl"]:
        assert where.kinds(minibatch.prompts.inputs) == {("prior", "train")}
        np.testing.assert_array_equal(masks(minibatch), where.correct(minibatch.prompts.inputs))
        assert kl is None
    in_rl = [inputs for inputs, labels in seen["pretraining"] if labels is None]
    assert len(in_rl) == CONFIG.prior_steps
    assert all(where.kinds(inputs) == {("prior", "train")} for inputs in in_rl)


@pytest.mark.parametrize("mode", ["exact", "sampled"])
@pytest.mark.parametrize("name", ["cokl", "forward_kl"])
def test_the_last_phase_rewards_the_new_task_regularizes_on_the_prior_one_and_is_tested_on_both(
    name, mode, seen, where
):
    with torch.no_grad():
        task = shift_task(CONFIG, SEED, lab.ShiftTrainer(CONFIG).base_parameters(SEED))
        for events in seen.values():
            events.clear()
        lab.ShiftTrainer(CONFIG).train(task, [ShiftRun(SEED, mode, methods.get(name), 0.5, 4)])
    cached = []
    for new, kl in seen["rl"]:
        assert where.kinds(new.prompts.inputs) == {("new", "train")}
        assert where.kinds(kl.prompts.inputs) == {("prior", "train")}
        for minibatch in (new, kl):
            np.testing.assert_array_equal(masks(minibatch), where.correct(minibatch.prompts.inputs))
        right = np.take_along_axis(where.correct(kl.prompts.inputs), kl.cached.actions[0].numpy(), -1)
        np.testing.assert_array_equal(kl.cached.rewards[0].numpy(), right)
        cached.append(right.any(-1))
    # The filter is CoKL's alone: forward KL has groups without a correct response, too.
    assert np.concatenate(cached).all() == (name == "cokl")
    evaluations = len(seen["evaluated"]) // 3
    assert evaluations == 3
    worlds = where.worlds
    for prior, new, zero in zip(*[iter(seen["evaluated"])] * 3, strict=True):
        for split, kind in ((prior, "prior"), (new, "new")):
            np.testing.assert_allclose(split.inputs.numpy(), worlds[kind].inputs["test"], rtol=0, atol=1e-12)
            np.testing.assert_array_equal(split.correct.mask.numpy(), where.correct(split.inputs))
        assert where.kinds(zero.inputs) == {("prior", "train")}
        np.testing.assert_array_equal(zero.correct.mask.numpy(), where.correct(zero.inputs))
