"""The whole sweep in miniature against `tests.oracles.sweep_lab`: every row and column, and the matched table."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from bandit.config import EnvironmentConfig
from bandit.sweep.analysis import Scored, matched_coefficients, matched_table
from bandit.sweep.config import SweepConfig
from bandit.sweep.train import run_sweep
from cokl import regularizers
from cokl.support.results import Execution
from tests.bandit.same import assert_same
from tests.oracles import sweep_lab as oracle

LABELS = {
    "none": "No regularizer",
    "entropy": "Entropy",
    "forward_kl": "Forward KL",
    "reverse_kl": "Reverse KL",
    "jensen_shannon": "Jensen-Shannon",
    "cokl": "CoKL",
    "correct_forward_kl": "Replay",
    "correct_reverse_kl": "Correct-only reverse KL",
    "cokl_floor": "CoKL + floor",
}
CONFIG = SweepConfig(
    methods=("cokl", "none", "jensen_shannon", "reverse_kl", "forward_kl", "entropy"),
    betas=(0.5, 0.02, 0.1),
    seeds=2,
    steps=7,
    eval_interval=3,
    batch_size=3,
    learning_rate=0.1,
    max_gradient_norm=0.2,
    hidden=(5, 4),
    pretrain_steps=9,
    pretrain_learning_rate=0.05,
    coverage_draws=3,
    adam_betas=(0.8, 0.9),
    adam_epsilon=1e-3,
    init_scale=0.9,
    dtype="float64",
    environment=EnvironmentConfig(
        clusters=2, input_dim=3, actions=5, correct_actions=2, train_inputs=12, test_inputs=8, correct_mass=0.4
    ),
)


@pytest.fixture(scope="module")
def lab() -> pd.DataFrame:
    """What the sweep trains."""
    return run_sweep(CONFIG, Execution(jobs=1), progress=False)


@pytest.fixture(scope="module")
def expected() -> pd.DataFrame:
    """What the plain loop does."""
    return oracle.table(CONFIG)


def test_every_row_of_the_sweeps_table_is_the_plain_loops(lab, expected):
    assert_same(lab, expected)


@pytest.mark.parametrize(("dtype", "to"), [("float32", 1e-4), ("float64", 1e-6)])
def test_so_is_a_sweep_of_the_other_methods_with_every_assumption_changed(dtype, to):
    """In single precision the fused objective; shuffled epochs, balanced clusters, one environment for both seeds."""
    other = replace(
        CONFIG,
        methods=("none", "cokl_floor", *(name for name in regularizers.names() if name not in CONFIG.methods), "cokl"),
        betas=(0.2,),
        steps=6,
        minibatch="epochs",
        dtype=dtype,
        environment=replace(CONFIG.environment, balanced_clusters=True, shared_environment=True, center_scale=0.7),
    )
    assert_same(run_sweep(other, Execution(jobs=1), progress=False), oracle.table(other), to)


def test_the_matched_table_is_the_plain_loops(lab, expected):
    rows = expected.to_dict("records")
    assert matched_coefficients(lab) == oracle.matched(rows)
    written = pd.DataFrame(oracle.matched_table(rows, LABELS, 4)).set_index(["method", "beta"])
    shown = matched_table(Scored.of(lab)).set_index(["method", "beta"])
    assert list(shown.index[:1]) == [("No regularizer", "0")]
    pd.testing.assert_frame_equal(shown.sort_index(), written[shown.columns].sort_index())


def test_the_miniature_has_what_a_wrong_sweep_would_get_wrong(expected):
    """Clusters that differ, coefficients and seeds that differ, and a match that is not at an end of the grid alone."""
    task = oracle.SingleTask(CONFIG, 0)
    for split in ("train", "test"):
        assert {*task.world.clusters[split]} == {0, 1}
    assert (task.world.correct[0] != task.world.correct[1]).any()
    ends = expected[(expected["step"] == 7) & (expected["method"] != "none")]
    assert ends["p_correct"].round(8).is_unique
    assert len({*oracle.matched(expected.to_dict("records")).values()}) > 1
