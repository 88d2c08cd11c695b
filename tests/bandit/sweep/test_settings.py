"""Every setting reaches training as a plain loop reads it; and which device it takes."""

import contextlib
import dataclasses
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from bandit import preset, run_sweep
from bandit.config import QUICK
from bandit.engine.exact import capture, loss_gradient, objectives
from bandit.engine.networks import StackedMLP, Trainer, initial_parameters
from bandit.engine.reference import layer_sizes, pretrain, seed_task
from bandit.engine.runs import resolve_device
from bandit.sweep.config import PRESETS, SweepConfig
from bandit.sweep.train import planned_runs
from cokl.support.errors import InputError
from cokl.support.results import Execution
from tests.bandit.same import assert_same
from tests.bandit.sweep.test_whole import CONFIG as WHOLE
from tests.oracles import sweep_lab

# Nine pretraining steps and seven RL steps of 3 out of 12 inputs each go beyond one epoch.
SMALL = dataclasses.replace(WHOLE, methods=("cokl",), betas=(0.1,))
CHANGES: dict[str, object] = {
    "adam_betas": (0.5, 0.9),
    "adam_epsilon": 1e-2,
    "init_scale": 0.3,
    "pretrain_learning_rate": 1e-2,
    "learning_rate": 1e-2,
    "max_gradient_norm": 1e-2,
    "coverage_draws": 5,
    "minibatch": "epochs",
    "batch_size": 5,
    "pretrain_steps": 8,
    "hidden": (4,),
}


def changed(name: str) -> SweepConfig:
    """SMALL with one setting changed."""
    return dataclasses.replace(SMALL, **{name: CHANGES[name]})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def unchanged() -> pd.DataFrame:
    """The sweep table of SMALL."""
    return run_sweep(SMALL, Execution(jobs=1), progress=False)


@pytest.mark.parametrize("name", CHANGES)
def test_a_sweep_with_any_setting_equals_the_plain_loop(name):
    config = changed(name)
    assert_same(run_sweep(config, Execution(jobs=1), progress=False), sweep_lab.table(config))


@pytest.mark.parametrize("name", CHANGES)
def test_every_setting_changes_the_result(name, unchanged):
    table = run_sweep(changed(name), Execution(jobs=1), progress=False)
    assert CHANGES[name] != getattr(SMALL, name)
    column = 5 if name == "coverage_draws" else 4
    assert (table.iloc[:, column] - unchanged.iloc[:, column]).abs().max() > 1e-5
    if name in ("learning_rate", "coverage_draws"):  # these leave pretraining alone
        references = (pretrain(config, 0, "cpu", torch.float64) for config in (SMALL, changed(name)))
        assert torch.equal(*references)


def test_quick_is_the_paper_with_fewer_coefficients_in_a_smaller_world():
    differing = {
        field.name: getattr(preset("quick"), field.name)
        for field in dataclasses.fields(SweepConfig)
        if getattr(preset("quick"), field.name) != getattr(PRESETS["paper"], field.name)
    }
    assert differing == {"betas": (0.003, 0.01, 0.03, 0.1, 0.3), **QUICK}


@pytest.mark.parametrize(("available", "expected"), [(True, "cuda"), (False, "cpu")])
def test_auto_takes_cuda_where_there_is_one(available, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    assert resolve_device("auto") == expected
    assert resolve_device("cpu") == "cpu"
    if available:
        assert resolve_device("cuda") == "cuda"
    else:
        with pytest.raises(InputError, match="sees no CUDA device"):
            resolve_device("cuda")


class NoStream:
    """Stands in for a CUDA stream."""

    def wait_stream(self, other: "NoStream") -> None:
        """Wait for nothing."""


class Recording:
    """Stands in for a CUDA graph."""

    def replay(self) -> None:
        """Launch nothing."""


def test_capturing_a_step_leaves_parameters_and_adam_as_they_were(tiny, monkeypatch):
    monkeypatch.setattr(torch.cuda, "Stream", NoStream)
    monkeypatch.setattr(torch.cuda, "current_stream", NoStream)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recording)
    monkeypatch.setattr(torch.cuda, "graph", contextlib.nullcontext)
    config = dataclasses.replace(tiny, dtype="float64", seeds=1)
    runs = planned_runs(config)
    start = initial_parameters(layer_sizes(config), 1.0, np.random.default_rng(0))
    task = seed_task(config, 0, start)
    batch = torch.arange(config.batch_size)
    moved = {}
    for captured in (False, True):
        trainer = Trainer(StackedMLP(layer_sizes(config), start.expand(len(runs), -1)), config, 1e-2)
        calls: list[int] = []

        def step(trainer=trainer, calls=calls):
            calls.append(len(calls))
            gradient = partial(loss_gradient, groups=objectives(runs, task.train), batch=batch)
            trainer.step(task.train.inputs[batch][None], gradient)

        with torch.no_grad():
            if captured:
                before = trainer.mlp.flat.clone()
                replay = capture(step, trainer)
                assert isinstance(getattr(replay, "__self__", None), Recording)
                assert len(calls) > 1
                assert torch.equal(trainer.mlp.flat, before)
                assert len(trainer.state()) == 5
                assert not any(value.any() for value in trainer.state())
            step()
            step()
        moved[captured] = trainer.mlp.flat
        assert not torch.equal(moved[captured], StackedMLP(layer_sizes(config), start.expand(len(runs), -1)).flat)
    assert torch.equal(moved[False], moved[True])
