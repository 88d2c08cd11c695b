"""The lab's table, its resuming, a regularizer of one's own, and bad input."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from bandit.engine.two_tasks.plan import kl_prompts
from bandit.shift.config import PRESETS, ShiftConfig
from bandit.shift.train import COLUMNS, planned_runs, shift
from cokl import methods, regularizers
from cokl.groups import SurrogateWeights
from cokl.support.errors import InputError
from cokl.support.results import Execution
from cokl_cli.app import _parse, main
from tests.bandit.shift.conftest import TINY_SHIFT


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of the finished miniature."""
    folder = tmp_path_factory.mktemp("shift")
    shift(TINY_SHIFT, Execution(out=folder, jobs=1), progress=False)
    return folder


def test_table_has_a_row_per_evaluated_step(finished):
    table = pd.read_parquet(finished / "shift.parquet")
    assert tuple(table.columns) == COLUMNS
    assert table.notna().all().all()
    base = table[table["method"] == "base"]
    assert len(base) == 2 * 2
    assert base[["beta", "step", "kl_prompts"]].eq(0).all().all()
    trained = table[table["method"] != "base"]
    # Three evaluations of a run without and two methods with two coefficients; the sweep has two sizes at one
    # coefficient, of which the smaller is in the grid already.
    assert len(trained[trained["role"] == "selection"]) == 2 * 3 * (1 + 2 * 2)
    assert len(trained[trained["role"] == "report"]) == 2 * 3 * (1 + 2 * 2 + 1)
    assert set(trained["step"]) == {0, 2, 4}
    assert dict(trained.groupby("role")["seed"].unique().map(list)) == {"report": [0], "selection": [1000]}
    assert trained.groupby("method")["kl_prompts"].unique().map(set).to_dict() == {
        "none": {0},
        "cokl": {2, 5},
        "forward_kl": {4},
    }
    assert not trained.duplicated(["seed", "mode", "method", "beta", "kl_prompts", "step"]).any()


def test_modes_share_their_start(finished):
    table = pd.read_parquet(finished / "shift.parquet")
    start = table[(table["step"] == 0) & (table["seed"] == 0)]
    assert start["prior_correct"].nunique() == start["new_correct"].nunique() == 1
    end = table[(table["step"] == 4) & (table["method"] == "none") & (table["seed"] == 0)]
    assert end["new_correct"].nunique() == 2


def test_prompts_per_update_follow_e3():
    config = PRESETS["paper"]
    names = ("none", "forward_kl", "reverse_kl", "correct_forward_kl", "cokl", "cokl_floor", "cokl_without_term1")
    assert [kl_prompts(config.kl_groups, methods.get(name)) for name in names] == [0, 16, 16, 16, 8, 8, 16]
    assert (config.batch_size, config.group_size, config.reference_group_size, config.buffer_size) == (64, 8, 8, 512)


def test_more_seeds_change_no_seed_there_was(finished, tmp_path):
    more = dataclasses.replace(TINY_SHIFT, seeds=2, mode="exact", methods=("none", "cokl"))
    table = shift(more, Execution(out=tmp_path, jobs=1), progress=False)
    before = pd.read_parquet(finished / "shift.parquet")
    before = before[(before["mode"] == "exact") & (before["method"] != "forward_kl")].reset_index(drop=True)
    pd.testing.assert_frame_equal(table[table["seed"] != 1].reset_index(drop=True), before)


SCRIPT = """
import dataclasses
from bandit.shift.train import shift
from cokl.support.results import Execution
from tests.bandit.shift.conftest import TINY_SHIFT
config = dataclasses.replace(TINY_SHIFT, steps=200, eval_interval=100, selection_seeds=0)
shift(config, Execution(out={folder!r}, jobs=1), progress=False)
"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    """The folder of a longer miniature, run to its end."""
    folder = tmp_path_factory.mktemp("whole")
    subprocess.run([sys.executable, "-c", SCRIPT.format(folder=str(folder))], check=True, capture_output=True)
    return folder


@pytest.mark.nightly
def test_a_stopped_lab_goes_on_and_ends_with_the_same_bytes(uninterrupted, tmp_path):
    command = [sys.executable, "-c", SCRIPT.format(folder=str(tmp_path))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "runs").glob("*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*.parquet")}
    assert 0 < len(kept) < len(list((uninterrupted / "runs").glob("*.parquet")))
    assert not (tmp_path / "shift.parquet").exists()

    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "shift.parquet").read_bytes() == (uninterrupted / "shift.parquet").read_bytes()
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_another_configuration_is_refused_and_named(finished):
    with pytest.raises(InputError, match=r"another configuration \(cluster_overlap: 0.0 there, 0.9 asked for\)"):
        shift(dataclasses.replace(TINY_SHIFT, cluster_overlap=0.9), Execution(out=finished), progress=False)


def test_a_regularizer_of_ones_own_takes_part(tiny_shift):
    """Only `value` in exact mode; with `surrogate_weights` in both. Its results equal those of the built-in twin."""

    @regularizers.register
    class Twin(regularizers.Regularizer):
        name = "twin_of_forward_kl"
        label = "Twin"

        def value(self, policy, reference):
            return (reference.probs * (reference.log_probs - policy.log_probs)).sum(-1)

    def twin_weights(self, reference, rollout, config):
        return SurrogateWeights(-(0 * reference.rewards + 1) / reference.rewards.shape[-1], None)

    config = dataclasses.replace(tiny_shift, methods=("forward_kl", "twin_of_forward_kl"))
    try:
        with pytest.raises(InputError, match="twin_of_forward_kl: this regularizer has no sampled surrogate"):
            planned_runs(config)
        tables = [shift(dataclasses.replace(config, mode="exact"), Execution(jobs=1), progress=False)]
        setattr(Twin, "surrogate_weights", twin_weights)  # noqa: B010
        Twin.streams = ("reference",)
        tables.append(shift(config, Execution(jobs=2), progress=False))
    finally:
        del regularizers._registry["twin_of_forward_kl"]
    for table in tables:
        known, own = (
            table[table["method"] == name].drop(columns="method").reset_index(drop=True) for name in config.methods
        )
        assert len(known) > 0
        pd.testing.assert_frame_equal(known, own, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ("cokl", "nope")}, "unknown method 'nope' .*; known: none, .*cokl_floor"),
        ({"kl_sweep_methods": ("none",)}, "kl_sweep_methods: expected methods with a regularizer, got none"),
    ],
)
def test_methods_that_cannot_be_trained_are_named(changes, message, tiny_shift):
    with pytest.raises(InputError, match=message):
        planned_runs(dataclasses.replace(tiny_shift, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cluster_overlap": 1.5}, "cluster_overlap: expected a number in"),
        ({"correct_overlap": -0.1}, "correct_overlap: expected a number in"),
        ({"group_size": 1}, "group_size: expected at least 2"),
        ({"betas": (0.1, 0.0)}, "betas: expected finite coefficients > 0"),
        ({"kl_sweep_beta": 0.0}, "kl_sweep_beta: expected a finite number > 0"),
        ({"betas": ()}, "betas: expected at least one value"),
        ({"methods": ("cokl", "cokl")}, "methods: expected different values"),
        ({"optimizer_steps": 0}, "optimizer_steps: expected at least 1"),
        ({"epsilon_is": 1.0}, "epsilon_is: expected a number in"),
        ({"buffer_size": 4001}, "buffer_size: expected at most the 4000 training inputs"),
        ({"mode": "other"}, "mode: expected"),
        ({"seeds": 1001}, "seeds: expected at most 1000"),
        ({"seeds": 2, "first_seed": 999}, "seeds: expected at most 1000"),
        ({"first_seed": -1}, "first_seed: expected at least 0"),
        ({"kl_sweep": (0,)}, "kl_sweep: expected sizes of at least 1"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(InputError, match=f"^{message}"):
        dataclasses.replace(ShiftConfig(), **changes)


def test_too_few_actions_for_two_separate_correct_sets():
    environment = dataclasses.replace(ShiftConfig().environment, actions=12, correct_actions=8)
    with pytest.raises(InputError, match="correct_overlap: expected at most 4 correct actions of the new task's own"):
        ShiftConfig(environment=environment)


@pytest.mark.parametrize("preset", ["quick", "paper"])
def test_the_command_line_takes_the_presets_and_explains_bad_input(preset, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bandit", "shift", "--preset", preset, "--methods", "nope", "--out", str(tmp_path)])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cokl: error: unknown method 'nope'")
    parsed = _parse(["bandit", "shift", "--preset", preset, "--mode", "exact", "--seeds", "3"])
    assert parsed.config == dataclasses.replace(PRESETS[preset], mode="exact", seeds=3)  # type: ignore[attr-defined]
