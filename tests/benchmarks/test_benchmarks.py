"""The benchmarks run and report what they promise; how fast anything is, is no test's business."""

import joblib
import pandas as pd
import pytest
import torch

from bandit.sweep.train import planned_runs
from benchmarks import actor, naive, sweep
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


def test_the_naive_loop_runs_every_run_on_all_cores(monkeypatch):
    monkeypatch.setattr(sweep, "_naive", lambda config, method: {"none": 5.0}.get(method, 1.0))
    with joblib.parallel_config(backend="sequential"):
        seconds = sweep.naive_loop(sweep.SMALL)
    assert seconds == pytest.approx(len(planned_runs(sweep.SMALL)) * 50 * 2 / usable_cores())


def test_the_floor_is_that_of_all_steps_shared_by_the_processes(monkeypatch):
    """Of the runs and of the references that are pretrained."""
    monkeypatch.setattr(sweep, "_floor", lambda config, runs: 2.0)
    monkeypatch.setattr(sweep, "usable_cores", lambda: 4)
    with joblib.parallel_config(backend="sequential"):
        seconds = sweep.floor(sweep.SMALL)
    assert seconds == pytest.approx((len(planned_runs(sweep.SMALL)) * 50 + 2 * 50) * 2 / 4)


def test_an_updates_ratio_is_cokls_seconds_over_grpos(monkeypatch):
    """On a clock that moves by 2 s for an update with RL rows alone, by 3 s for CoKL's and by 0.5 s for its weights."""
    clock = [0.0]

    def spend(seconds, result=None):
        clock[0] += seconds
        return result

    monkeypatch.setattr(actor, "now", lambda device, kind: clock[0])
    monkeypatch.setattr(actor, "make_model", lambda *_: torch.nn.Linear(1, 1))
    monkeypatch.setattr(actor, "make_rows", lambda *_: None)
    monkeypatch.setattr(actor, "row_weights", lambda *_: spend(0.5, torch.ones(1)))
    monkeypatch.setattr(actor, "backward", lambda model, rows, weights, *_: spend(2 if weights is None else 3))
    ratio, weighing, seconds = actor.compare(actor.SMALL, "cpu")
    assert (ratio.median, ratio.low, ratio.high, ratio.count) == (1.75, 1.75, 1.75, actor.ROUNDS)
    assert (weighing, seconds) == (0.25, 2.0)


def test_a_naive_step_is_timed():
    assert sweep._naive(sweep.SMALL, "cokl", steps=2) > 0


def test_two_sweeps_are_as_far_apart_as_their_metrics():
    table = pd.DataFrame({"seed": 0, "method": "cokl", "beta": [0.1, 0.2], "step": 5, "p_correct": [0.5, 0.25]})
    table["conditional_kl"] = [1.0, 2.0]
    other = table.assign(p_correct=[0.75, 0.25], conditional_kl=[1.5, 2.0])
    assert sweep.apart(table, other.iloc[::-1]) == (0.5, 0.125)
