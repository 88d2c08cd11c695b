"""The benchmarks run and report what they promise; how fast anything is, is no test's business."""

import re

import joblib
import pandas as pd
import pytest
import torch

from benchmarks import naive, steps, sweep
from cokl import regularizers
from cokl.policy import CorrectSet, Policy
from cokl.support.results import usable_cores


@pytest.mark.parametrize("method", [method for method, penalty in naive.PENALTIES.items() if penalty is not None])
def test_the_naive_loop_computes_the_same_loss(method):
    generator = torch.Generator().manual_seed(0)
    logits, reference_logits = torch.randn(2, 7, 9, dtype=torch.float64, generator=generator)
    mask = torch.rand(7, 9, generator=generator) < 0.4
    mask[:, 0] = True
    policy, reference = (Policy(x, CorrectSet.from_mask(mask)) for x in (logits, reference_logits))
    penalty = naive.PENALTIES[method]
    assert penalty is not None
    torch.testing.assert_close(
        penalty(policy.log_probs, reference.log_probs, mask), regularizers.get(method).value(policy, reference)
    )


def test_steps_prints_two_ratios(capsys, monkeypatch):
    monkeypatch.setattr(steps, "ROUNDS", 1)
    assert steps.Steps(steps=2).run() == 0
    printed = capsys.readouterr().out
    for name in ("naive over engine", "engine over floor"):
        found = re.search(rf"{name}: (\S+), 95% interval (\S+) to (\S+) \((\d+) blocks", printed)
        assert found
        ratio, low, high, blocks = map(float, found.groups())
        assert 0 < low <= ratio <= high
        assert blocks == usable_cores() * len(naive.PENALTIES)


def test_a_ratio_is_taken_within_a_turn(monkeypatch):
    """So that a slow moment, which falls on floor, engine and naive loop alike, is not in it."""
    turns = [(1.0 * slow, 2.0 * slow, 6.0 * slow) for slow in (1, 10, 3)]
    monkeypatch.setattr(steps, "_turns", lambda method, count: turns)
    with joblib.parallel_config(backend="sequential"):
        ratios = steps.measure(steps=3)
    for name, ratio in (("engine over floor", 2), ("naive over engine", 3)):
        assert (ratios[name].low, ratios[name].median, ratios[name].high) == (ratio, ratio, ratio)


def test_two_sweeps_are_as_far_apart_as_their_metrics():
    table = pd.DataFrame({"seed": 0, "method": "cokl", "beta": [0.1, 0.2], "step": 5, "p_correct": [0.5, 0.25]})
    table["conditional_kl"] = [1.0, 2.0]
    other = table.assign(p_correct=[0.75, 0.25], conditional_kl=[1.5, 2.0])
    assert sweep.apart(table, other.iloc[::-1]) == (0.5, 0.125)
