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

from benchmarks import actor

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


def test_an_update_does_not_depend_on_its_micro_batches():
    """One of which holds RL rows and the regularizer's."""
    shape = actor.SMALL
    assert (shape.groups - 2) * shape.group % shape.micro_batch
    model = actor.make_model(shape, "cpu")
    rows = actor.draw(shape, model, shape.groups, 1, torch.float32)
    gradients = []
    for micro_batch in (shape.micro_batch, len(rows.tokens)):
        model.zero_grad()
        weights = actor.row_weights(rows, shape.group)
        actor.backward(model, rows, weights, dataclasses.replace(shape, micro_batch=micro_batch), torch.float32)
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert (gradients[0] - gradients[1]).norm() < 1e-5 * gradients[1].norm()
