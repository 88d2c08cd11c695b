"""The fused kernel gives what the plain path gives, ordinary and extreme logits alike."""

import dataclasses

import pytest
import torch

from bandit.engine.exact import Objective, objectives
from bandit.engine.fused import FusedObjective
from bandit.engine.reference import SeedTask, pretrain, seed_task
from bandit.engine.runs import Run
from bandit.sweep.train import steps
from cokl import methods, regularizers
from cokl.methods import Method
from cokl.policy import Policy
from tests.bandit.conftest import TINY

BETAS = torch.tensor([0.001, 0.1, 3.0])
METHODS = ["none", *regularizers.names()]


@pytest.fixture(scope="module", params=[20, 200])
def task(request) -> SeedTask:
    """A float32 task whose number of actions is, and is not, a multiple of the vector width."""
    environment = dataclasses.replace(TINY.environment, actions=request.param + 3)
    config = dataclasses.replace(TINY, environment=environment)
    return seed_task(config, 0, pretrain(config, 0, "cpu", torch.float32))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("method", METHODS)
def test_fused_gradient_equals_the_plain_one(method, scale, task):
    batch = torch.arange(0, 200, 3)
    actions = task.train.correct.num_actions
    logits = scale * torch.randn(3, len(batch), actions, generator=torch.Generator().manual_seed(0))
    reference = task.train.reference(batch)
    exact = Objective(methods.get(method), BETAS.double(), double(task.train)).gradient(logits.double(), batch)
    fused = FusedObjective(methods.get(method), BETAS, task.train).gradient(logits.clone(), batch)
    assert fused.isfinite().all()
    # Costs are differences of logits, so their rounding is that of the largest log-ratio.
    policy = Policy(logits, reference.correct)
    magnitude = (policy.log_probs - reference.log_probs).abs().amax(-1, keepdim=True).clamp_min(1)
    error = (fused - exact).abs() / (1 + BETAS[:, None, None] * magnitude)
    assert error.max().item() < 2e-6


def double(split):
    """The split in float64."""
    return dataclasses.replace(
        split, inputs=split.inputs.double(), reference_log_probs=split.reference_log_probs.double()
    )


@pytest.mark.parametrize("method", METHODS)
def test_rows_are_independent(method, task):
    """A row's gradient has the same bits whatever its place in the batch and its neighbours."""
    objective = FusedObjective(methods.get(method), BETAS, task.train)
    batch = torch.arange(50)
    logits = torch.randn(3, 50, task.train.correct.num_actions, generator=torch.Generator().manual_seed(1))
    whole = objective.gradient(logits.clone(), batch)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(2))
    assert torch.equal(objective.gradient(logits[:, order].contiguous(), batch[order]), whole[:, order])


def test_what_has_no_fused_form_takes_the_plain_path(task):
    @dataclasses.dataclass(frozen=True)
    class Own(regularizers.Regularizer):
        name = "own"
        label = "Own"

        def value(self, policy, reference):
            return policy.mass

    kinds = {
        "cokl": regularizers.get("cokl"),
        "own": Own(),
    }
    runs = [Run(0, Method(name, name, regularizer), 0.1) for name, regularizer in kinds.items()]
    runs.append(Run(0, methods.get("cokl_floor"), 0.1))
    assert [type(objective) for _, objective in objectives(runs, task.train)] == [FusedObjective, *[Objective] * 2]
    assert [type(objective) for _, objective in objectives(runs, double(task.train))] == [Objective] * 3


def test_all_methods_beside_a_regularizer_of_ones_own_take_the_plain_path(task, monkeypatch):
    """As on a card: what is compared is computed in one way. The sweep's own methods keep the fused one."""

    class Own(regularizers.Regularizer):
        name = "own"
        label = "Own"

        def value(self, policy, reference):
            return policy.mass

    monkeypatch.setitem(regularizers._registry, "own", Own())
    taken = []

    def gradient(self, logits, batch):
        taken.append(type(self))
        return logits

    for kind in (FusedObjective, Objective):
        monkeypatch.setattr(kind, "gradient", gradient)
    environment = dataclasses.replace(TINY.environment, actions=task.train.correct.num_actions)
    own = dataclasses.replace(TINY, methods=("cokl", "own"), environment=environment, steps=1)
    for config in (own, dataclasses.replace(own, methods=("cokl",))):
        assert len(list(steps(config, task, [Run(0, methods.get("cokl"), 0.1)]))) == 2
    assert taken == [Objective, FusedObjective]
    monkeypatch.delitem(regularizers._registry, "own")  # a worker that trains the built-in methods has not loaded it
    assert len(list(steps(own, task, [Run(0, methods.get("cokl"), 0.1)]))) == 2
    assert taken[2:] == [Objective]
