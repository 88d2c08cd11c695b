"""Every setting reaches training as a researcher's own loop reads it; and what a sweep does to its folder and machine.

The loop here shares no training code with the project: Adam, clipping, minibatches and initialisation are written out.
"""

import contextlib
import copy
import dataclasses
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from bandit import Environment, preset, run_sweep
from bandit.engine.exact import capture, loss_gradient, objectives
from bandit.engine.networks import StackedMLP, Trainer, initial_parameters
from bandit.engine.reference import layer_sizes, pretrain, seed_task
from bandit.engine.runs import resolve_device
from bandit.sweep.config import PRESETS, SweepConfig
from bandit.sweep.plan import planned_runs
from cokl.support.chunks import Origin
from cokl.support.errors import InputError
from cokl.support.experiment import Execution
from cokl.support.files import write_atomically
from cokl.support.results_folder import open_folder
from cokl.support.workers import Work, Workers
from tests.bandit.conftest import TINY
from tests.bandit.engine.test_evaluation import metrics_by_definition
from tests.bandit.sweep.test_training import module_with

# Fifteen pretraining steps and fifteen RL steps of 16 out of 200 inputs each go beyond one epoch.
SMALL = dataclasses.replace(
    TINY, methods=("cokl",), betas=(0.1,), dtype="float64", steps=15, eval_interval=6, pretrain_steps=15
)
CHANGES: dict[str, object] = {
    "adam_betas": (0.5, 0.9),
    "adam_epsilon": 1e-2,
    "init_scale": 0.3,
    "pretrain_learning_rate": 1e-2,
    "learning_rate": 1e-2,
    "max_gradient_norm": 1e-2,
    "coverage_draws": 5,
    "minibatch": "epochs",
    "batch_size": 24,
    "pretrain_steps": 11,
    "hidden": (5,),
}


def naive_batches(config: SweepConfig, seed: int, stream: int) -> Iterator[list[int]]:
    """Endless minibatches, input by input."""
    rng = np.random.default_rng([seed, stream])
    inputs = config.environment.train_inputs

    def epochs() -> Iterator[int]:
        while True:
            yield from rng.permutation(inputs).tolist()

    walk = epochs()
    while True:
        if config.minibatch == "epochs":
            yield list(itertools.islice(walk, config.batch_size))
        else:
            yield rng.integers(inputs, size=config.batch_size).tolist()


def naive_adam(
    config: SweepConfig, net: nn.Module, learning_rate: float, loss: Callable[[], Tensor]
) -> Callable[[], None]:
    """A function that takes the next Adam step on `loss`, with the gradient clipped to its norm."""
    parameters = list(net.parameters())
    first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    (decay_first, decay_second), count = config.adam_betas, itertools.count(1)

    def step() -> None:
        gradients = torch.autograd.grad(loss(), parameters)
        norm = math.sqrt(sum(gradient.square().sum().item() for gradient in gradients))
        done = next(count)
        with torch.no_grad():
            for parameter, m, v, gradient in zip(parameters, first, second, gradients, strict=True):
                clipped = gradient * min(1.0, config.max_gradient_norm / (norm + 1e-6))
                m.copy_(decay_first * m + (1 - decay_first) * clipped)
                v.copy_(decay_second * v + (1 - decay_second) * clipped**2)
                unbiased, scale = m / (1 - decay_first**done), v / (1 - decay_second**done)
                parameter.sub_(learning_rate * unbiased / (scale.sqrt() + config.adam_epsilon))

    return step


def naive_reference(config: SweepConfig, seed: int) -> nn.Module:
    """The pretrained reference of a seed."""
    environment = Environment(config.environment, seed)
    sizes = (config.environment.input_dim, *config.hidden, config.environment.actions)
    rng, layers = np.random.default_rng([seed, 2]), []
    for fan_in, fan_out in itertools.pairwise(sizes):
        bound = config.init_scale / math.sqrt(fan_in)
        layers.append(rng.uniform(-bound, bound, (fan_in + 1) * fan_out))
    net = module_with(torch.from_numpy(np.concatenate(layers)), sizes)
    batches = naive_batches(config, seed, 3)

    def loss() -> Tensor:
        batch = next(batches)
        log_probs = net(environment.train_inputs[batch]).log_softmax(-1)
        return -(environment.oracle[environment.train_clusters[batch]] * log_probs).sum(-1).mean()

    step = naive_adam(config, net, config.pretrain_learning_rate, loss)
    for _ in range(config.pretrain_steps):
        step()
    return net


def naive_rows(config: SweepConfig, seed: int) -> list[dict[str, float]]:
    """A seed's rows of the sweep table: the reference, then CoKL at the only coefficient."""
    environment = Environment(config.environment, seed)
    reference = naive_reference(config, seed)
    policy = copy.deepcopy(reference)
    batches = naive_batches(config, seed, 4)

    def loss() -> Tensor:
        batch = next(batches)
        inputs, correct = environment.train_inputs[batch], environment.correct.mask[environment.train_clusters[batch]]
        probs, reference_probs = policy(inputs).softmax(-1), reference(inputs).softmax(-1).detach()
        mass = (probs * correct).sum(-1)
        own = probs / mass[:, None]
        wanted = reference_probs * correct / (reference_probs * correct).sum(-1, keepdim=True)
        divergence = (wanted[correct] * (wanted[correct] / own[correct]).log()).sum() / len(batch)
        return -mass.mean() + config.betas[0] * divergence

    step = naive_adam(config, policy, config.learning_rate, loss)
    rows = [{"seed": seed, "beta": 0.0, "step": 0, **metrics_by_definition(config, seed, reference, reference)}]
    for done in range(config.steps + 1):
        if done % config.eval_interval == 0 or done == config.steps:
            metrics = metrics_by_definition(config, seed, policy, reference)
            rows.append({"seed": seed, "beta": config.betas[0], "step": done, **metrics})
        if done < config.steps:
            step()
    return rows


def changed(name: str) -> SweepConfig:
    """SMALL with one setting changed."""
    return dataclasses.replace(SMALL, **{name: CHANGES[name]})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def unchanged() -> pd.DataFrame:
    """The sweep table of SMALL."""
    return run_sweep(SMALL, Execution(jobs=1), progress=False)


@pytest.mark.parametrize("name", [None, *CHANGES])
def test_a_sweep_with_any_setting_equals_the_naive_loop(name, unchanged):
    config = changed(name) if name else SMALL
    table = run_sweep(config, Execution(jobs=1), progress=False) if name else unchanged
    assert table["method"].tolist() == 2 * ["reference", *4 * ["cokl"]]
    assert table[table["method"] == "cokl"]["step"].tolist() == 2 * [0, 6, 12, 15]
    expected = pd.DataFrame([row for seed in range(2) for row in naive_rows(config, seed)])
    pd.testing.assert_frame_equal(table.drop(columns="method"), expected, rtol=1e-7, atol=1e-11, check_dtype=False)


@pytest.mark.parametrize("name", CHANGES)
def test_every_setting_changes_the_result(name, unchanged):
    table = run_sweep(changed(name), Execution(jobs=1), progress=False)
    assert CHANGES[name] != getattr(SMALL, name)
    column = 5 if name == "coverage_draws" else 4
    assert (table.iloc[:, column] - unchanged.iloc[:, column]).abs().max() > 1e-5
    if name in ("learning_rate", "coverage_draws"):  # these leave pretraining alone
        references = (pretrain(config, 0, "cpu", torch.float64) for config in (SMALL, changed(name)))
        assert torch.equal(*references)


def test_quick_is_the_paper_with_fewer_coefficients_seeds_steps_and_inputs():
    differing = {
        field.name: getattr(preset("quick"), field.name)
        for field in dataclasses.fields(SweepConfig)
        if getattr(preset("quick"), field.name) != getattr(PRESETS["paper"], field.name)
    }
    assert differing == {
        "betas": (0.003, 0.03, 0.1, 0.3),
        "seeds": 4,
        "steps": 400,
        "batch_size": 256,
    }


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


def test_a_writer_that_fails_half_way_leaves_the_old_file(tmp_path):
    path = tmp_path / "table"
    write_atomically(path, lambda temporary: temporary.write_text("old"))

    def fails(temporary):
        temporary.write_text("half of the n")
        assert path.read_text() == "old"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_atomically(path, fails)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    write_atomically(path, lambda temporary: temporary.write_text("new"))
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_first_write_that_fails_leaves_nothing(tmp_path):
    def fails(temporary):
        temporary.write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_atomically(tmp_path / "folder" / "table", fails)
    assert list((tmp_path / "folder").iterdir()) == []


def numbers(size):
    return pd.DataFrame({"number": range(size)})


def test_progress_starts_at_what_is_done_and_counts_sizes(tmp_path, capsys):
    origin = Origin(tmp_path, "config", "code")
    works = [Work(numbers, (size,), tmp_path / f"{size}.parquet", str(size), size) for size in (5, 2, 3)]
    origin.save(numbers(5), works[0].path, "5")
    tables = Workers("loky", 1).do(works, origin, "runs", progress=True)
    assert [len(table) for table in tables] == [5, 2, 3]
    shown = re.findall(r"runs: (\d+) of (\d+)", capsys.readouterr().err)
    assert shown[0] == ("5", "10")
    assert shown[-1] == ("10", "10")
    Workers("loky", 1).do(works, origin, "runs", progress=True)
    assert capsys.readouterr().err == ""


@pytest.fixture
def three_threads():
    """A caller that computes with three threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_work_computes_with_one_thread_and_gives_the_callers_back(three_threads, tmp_path):
    def piece():
        return pd.DataFrame({"threads": [torch.get_num_threads()], "autograd": [torch.is_grad_enabled()]})

    origin = Origin(tmp_path, "config", "code")
    work = Work(piece, (), tmp_path / "piece.parquet", "piece")
    (table,) = Workers("loky", 1).do([work], origin, "pieces", progress=False)
    assert table.iloc[0].tolist() == [1, False]
    assert torch.get_num_threads() == 3
    assert torch.is_grad_enabled()

    def fails():
        raise ZeroDivisionError

    failing = Work(fails, (), tmp_path / "failed.parquet", "failed")
    with pytest.raises(ZeroDivisionError):
        Workers("loky", 1).do([failing], origin, "pieces", progress=False)
    assert torch.get_num_threads() == 3


def test_going_on_in_another_environment_is_said_and_both_are_listed(tiny, tmp_path, capsys):
    config = {**tiny.as_dict(), "device": "cpu"}
    path = tmp_path / "environment.json"
    with open_folder(tmp_path, config, {}):
        pass
    (current,) = json.loads(path.read_text())
    assert capsys.readouterr().err == ""
    earlier = {**current, "git_commit": "0123abc"}
    path.write_text(json.dumps([earlier]))
    with open_folder(tmp_path, config, {}):
        pass
    note = capsys.readouterr().err
    assert note.startswith("note: resuming with results made in another environment (git_commit: 0123abc there, ")
    assert json.loads(path.read_text()) == [earlier, current]
    with open_folder(tmp_path, config, {}):
        pass
    assert capsys.readouterr().err == ""
    assert json.loads(path.read_text()) == [earlier, current]
