"""Which device a sweep takes, and that capturing a step as a CUDA graph moves nothing."""

import contextlib
import dataclasses
from functools import partial

import numpy as np
import pytest
import torch

from bandit.engine.exact import capture, loss_gradient, objectives
from bandit.engine.networks import StackedMLP, Trainer, initial_parameters
from bandit.engine.reference import layer_sizes, seed_task
from bandit.engine.runs import resolve_device
from bandit.sweep.train import planned_runs
from cokl.support.errors import InputError


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
