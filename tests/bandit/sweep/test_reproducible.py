"""The same numbers elsewhere: with other threads bit for bit, with other versions of the libraries within a tolerance.

reproducible.csv is `run_sweep(TINY).to_csv(..., index=False)` with torch 2.13.0 on x86-64. This test is among those
that `make test-oldest` and `make test-newest` run.
"""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bandit.sweep.train import run_sweep
from cokl.support.results import Execution
from tests.bandit.conftest import TINY

STORED = Path(__file__).with_name("reproducible.csv")
TOLERANCE = 1e-4
"""Of probabilities, coverage and nats, after 20 float32 steps: other kernels round differently."""
KEYS = ["seed", "method", "beta", "step"]


def deviation(found: pd.DataFrame, expected: pd.DataFrame) -> float:
    """The largest of any number; infinite where the rows are not the same."""
    found, expected = (table.sort_values(KEYS).reset_index(drop=True) for table in (found, expected))
    if list(found) != list(expected) or not found[KEYS].equals(expected[KEYS]):
        return np.inf
    return float((found.drop(columns=KEYS) - expected.drop(columns=KEYS)).abs().to_numpy().max())


def test_these_versions_give_the_stored_numbers():
    assert deviation(run_sweep(TINY, Execution(jobs=1), progress=False), pd.read_csv(STORED)) < TOLERANCE


@pytest.mark.parametrize("change", [{"learning_rate": 2e-3}, {"batch_size": 17}, {"pretrain_steps": 21}])
def test_another_experiment_does_not(change):
    other = run_sweep(dataclasses.replace(TINY, **change), Execution(jobs=1), progress=False)
    assert deviation(other, pd.read_csv(STORED)) > TOLERANCE


def test_threads_change_no_bit():
    """Nor do processes: see `tests/bandit/test_labs.py`."""
    one = run_sweep(TINY, Execution(jobs=1), progress=False)
    torch.set_num_threads(2)
    try:
        two = run_sweep(TINY, Execution(jobs=1), progress=False)
    finally:
        torch.set_num_threads(1)
    pd.testing.assert_frame_equal(two, one, check_exact=True)
