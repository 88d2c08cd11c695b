"""`benchmarks/gpu.sh` on a CPU, with small shapes: what it computes is right; how fast it is, is no test's business."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

import torch

from benchmarks import actor, engines

ROOT = Path(__file__).parents[2]


def test_the_script_prints_every_figure():
    command = ["bash", str(ROOT / "benchmarks" / "gpu.sh"), "--device", "cpu", "--small"]
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    number = r"(\d\S*\d)"

    def figures(line: str) -> list[float]:
        found = re.search(line.replace("#", number), printed)
        assert found, printed
        return [float(figure) for figure in found.groups()]

    assert printed.count(f"PyTorch {torch.__version__}: ") == 2
    _, ratio, low, high = figures(r"actor update with CoKL over GRPO's # s: #, 95% interval # to # \(20 rounds\)")
    assert 0 < low <= ratio <= high
    assert all(share > 0 for share in figures("CoKL's row weights alone: # % of an update"))
    single, half = figures("relative error # in float32 and # in bfloat16")
    assert 1e-7 < single < 1e-5  # a float32 that has no error was not compared with float64
    assert 1e-4 < half < 5e-2
    assert all(value > 0 for value in figures("sweep: # s, # times its matrix products alone"))
    assert all(value > 0 for value in figures(r"the CPU's: # s on \d+ cores, # times the device's"))
    assert figures("metrics beside the CPU's: at most # apart, # in the median") == [0, 0]
    for engine in engines.PACKAGES:
        assert printed.count(f"{engine}: not run, without ") == 1


ALIKE = {"cokl/kl_rows": 48.0, "cokl/loss": 7.5, "actor/grad_norm": 0.25}


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({}, 0),
        ({"cokl/loss": 7.6}, 0),
        ({"cokl/loss": 7.7}, 1),
        ({"actor/grad_norm": 0.26}, 1),
        ({"actor/grad_norm": float("nan")}, 1),
        ({"cokl/kl_rows": 47.0}, 1),
        (None, 1),
    ],
)
def test_an_engines_step_is_compared_with_the_first_ones(change, differs, capsys):
    found = None if change is None else ALIKE | change
    assert engines.apart("megatron", found, ALIKE, close=0.02) == differs
    assert "megatron: " in capsys.readouterr().out


@pytest.mark.parametrize("engine", engines.OPTIONS)
def test_the_command_of_every_engine_is_composed_and_not_refused(engine, tmp_path):
    """As it is on GPUs; the run itself needs the engine's packages."""
    pytest.importorskip("verl")
    from hydra import compose, initialize_config_module

    from llm_bridge.trainer.preflight import refusals
    from tests.llm_bridge.toy import make_toy

    make_toy(tmp_path, 0)
    engines.write_world(tmp_path, str(tmp_path / "model"))
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", engines.options(tmp_path, str(tmp_path / "model"), engine, "cuda"))
    assert refusals(config) == []
    told = config.actor_rollout_ref.actor.strategy, config.actor_rollout_ref.rollout.name
    assert told == {"megatron": ("megatron", "vllm"), "sglang": ("fsdp", "sglang")}.get(engine, ("fsdp", "vllm"))


def test_an_update_does_not_depend_on_its_micro_batches():
    """One of which holds RL rows and the regularizer's."""
    shape = actor.SMALL
    assert (shape.groups - 2) * shape.group % shape.micro_batch
    model = actor.make_model(shape, "cpu")
    rows = actor.make_rows(shape, model, shape.groups, 1, torch.float32)
    gradients = []
    for micro_batch in (shape.micro_batch, len(rows.tokens)):
        model.zero_grad()
        weights = actor.row_weights(rows, shape.group)
        actor.backward(model, rows, weights, dataclasses.replace(shape, micro_batch=micro_batch), torch.float32)
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert (gradients[0] - gradients[1]).norm() < 1e-5 * gradients[1].norm()
