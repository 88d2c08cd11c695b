"""The lab's runs: planned, resumed to the same bytes, bound to their configuration, open to a new regularizer."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bandit import run_sweep
from bandit.finite_group import figures as figure
from bandit.finite_group.analysis import write
from bandit.finite_group.config import PRESETS
from bandit.finite_group.train import COLUMNS, IDENTITY, finite_group, planned_runs
from bandit.sweep.config import SweepConfig
from cokl import regularizers
from cokl.groups import SurrogateWeights, reference_weights, rollout_weights
from cokl.support.errors import InputError
from cokl.support.results import Execution
from cokl_cli.app import main
from tests.bandit.finite_group.conftest import TINY

TABLES = ("finite_group.parquet", "recovery.parquet")


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of a finished miniature, trained by two processes."""
    folder = tmp_path_factory.mktemp("finished")
    finite_group(TINY, Execution(out=folder, jobs=2), progress=False)
    return folder


def test_tables_have_a_row_per_run_and_step(finished, tiny):
    metrics, recovery = (pd.read_parquet(finished / name) for name in TABLES)
    runs = len(planned_runs(tiny))
    # none exact; CoKL exact and fresh for each mu, cached and unfiltered; replay exact and fresh.
    assert runs == 2 * (1 + 2 * (2 * (1 + 2) + 2 + 2) + 2 * (1 + 2))
    assert len(metrics) == runs * 3
    assert list(metrics.columns[:7]) == list(IDENTITY)
    assert list(recovery.columns) == [*IDENTITY, *COLUMNS]
    measured = 2 * 2 * (2 * 2 + 2 + 2)  # seeds, betas; CoKL fresh for each mu, unfiltered; replay: each with two sizes
    assert len(recovery) == measured * len(tiny.recovery_steps) * tiny.environment.clusters
    assert metrics.drop(columns="zero_correct_rate").notna().all().all()
    assert (metrics["zero_correct_rate"].isna() == (metrics["groups"] == "exact")).all()
    drawn = metrics["step"] / metrics["optimizer_steps"] * 16
    assert metrics["passes"].tolist() == pytest.approx((drawn / tiny.environment.train_inputs).tolist())
    assert recovery.notna().all().all()
    assert sorted(recovery[recovery["optimizer_steps"] == 3]["step"].unique()) == [2, 11]


def test_the_exact_limit_is_the_sweep(finished, tiny):
    shared = {field.name: getattr(tiny, field.name) for field in dataclasses.fields(SweepConfig)}
    table = run_sweep(SweepConfig(**shared), Execution(jobs=1), progress=False)
    metrics = pd.read_parquet(finished / TABLES[0])
    exact = metrics[(metrics["groups"] == "exact") & (metrics["optimizer_steps"] == 1)]
    columns = ["seed", "method", "beta", "step", "p_correct", "coverage_at_64", "conditional_kl"]
    expected = table[table["method"] != "reference"][columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(exact[columns].reset_index(drop=True), expected, rtol=1e-4, atol=1e-6)


def test_an_interrupted_lab_goes_on_and_ends_with_the_same_bytes(finished, tiny, tmp_path):
    finite_group(tiny, Execution(out=tmp_path, jobs=1), progress=False)
    whole = {name: (finished / name).read_bytes() for name in TABLES}
    assert {name: (tmp_path / name).read_bytes() for name in TABLES} == whole
    for path in sorted((tmp_path / "runs").glob("*.parquet"))[::2]:
        path.unlink()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*.parquet")}
    for name in TABLES:
        (tmp_path / name).unlink()
    finite_group(tiny, Execution(out=tmp_path, jobs=1), progress=False)
    assert {name: (tmp_path / name).read_bytes() for name in TABLES} == whole
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_another_configuration_is_refused(finished, tiny):
    with pytest.raises(InputError, match=r"another configuration \(epsilon_is: 0.2 there, 0.1 asked for\)"):
        finite_group(dataclasses.replace(tiny, epsilon_is=0.1), Execution(out=finished), progress=False)


def test_a_new_regularizer_takes_part(tiny, tmp_path):
    """Trained, measured, in the tables and in the figures; its twin's numbers, since it is CoKL written again."""

    @regularizers.register
    class Twin(regularizers.Regularizer):
        name = "twin_of_cokl"
        label = "Twin"
        conditional = True
        streams = ("reference", "rollout")

        def value(self, policy, reference):
            gaps = reference.conditional_log_probs - policy.conditional_log_probs
            return (reference.conditional_probs * gaps).sum(-1)

        def surrogate_weights(self, reference, rollout, config):
            return SurrogateWeights(-reference_weights(reference), rollout_weights(rollout, config.epsilon_is))

    config = dataclasses.replace(tiny, methods=("cokl", "twin_of_cokl"), betas=(0.5,), seeds=1)
    try:
        metrics, recovery = finite_group(config, Execution(out=tmp_path, jobs=2), progress=False)
        write((metrics, recovery), tiny, tmp_path)
        assert len(figure.render(figure.metrics(metrics)).axes) == 6
        assert len(figure.render(figure.recovery(recovery, "twin_of_cokl")).axes) == 4
    finally:
        del regularizers._registry["twin_of_cokl"]
    assert "| Twin " in (tmp_path / "results.md").read_text()
    for table in (metrics, recovery):
        known, own = (
            table[table["method"] == name].drop(columns="method").reset_index(drop=True)
            for name in ("cokl", "twin_of_cokl")
        )
        pd.testing.assert_frame_equal(known, own, rtol=1e-3, atol=1e-4)


def test_a_regularizer_without_a_surrogate_is_refused(tiny):
    @regularizers.register
    class Unsampled(regularizers.Regularizer):
        name = "unsampled"
        label = "Unsampled"

        def value(self, policy, reference):
            return policy.probs.square().sum(-1)

    try:
        with pytest.raises(InputError, match="unsampled: this regularizer has no sampled surrogate"):
            planned_runs(dataclasses.replace(tiny, methods=("cokl", "unsampled")))
    finally:
        del regularizers._registry["unsampled"]


def test_the_floor_takes_part(tiny):
    config = dataclasses.replace(
        tiny, methods=("cokl", "cokl_floor"), betas=(0.5,), seeds=1, reference_groups=("fresh",)
    )
    metrics, _ = finite_group(config, Execution(jobs=1), progress=False)
    plain, floored = (metrics[metrics["method"] == name]["p_correct"].to_numpy() for name in config.methods)
    assert np.isfinite(floored).all()
    assert not np.array_equal(plain, floored)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"group_sizes": (0,)}, "group_sizes: expected numbers of at least 1, got 0"),
        ({"group_sizes": ()}, "group_sizes: expected at least one value, got an empty list"),
        ({"optimizer_steps": (2, 2)}, "optimizer_steps: expected different values, got 2,2"),
        ({"reference_groups": ("stale",)}, "reference_groups: expected some of fresh, cached, unfiltered, got stale"),
        ({"optimizer_steps": (1, 4)}, "recovery_steps: expected multiples of all optimizer_steps below 12, got 9"),
        ({"recovery_steps": (12,)}, "recovery_steps: expected multiples of all optimizer_steps below 12, got 12"),
        ({"recovery_draws": 0}, "recovery_draws: expected at least 1, got 0"),
        ({"epsilon_is": 1.0}, r"epsilon_is: expected a number in \(0, 1\), got 1.0"),
        ({"methods": ("cokl", "nonsense")}, "unknown method 'nonsense'; known: none, cokl,"),
    ],
)
def test_a_bad_configuration_is_named(tiny, changes, says):
    with pytest.raises(InputError, match=f"^{says}"):
        planned_runs(dataclasses.replace(tiny, **changes))


def test_bad_input_gets_one_line_and_exit_code_2(tmp_path):
    command = [
        sys.executable,
        "-m",
        "cokl_cli",
        "bandit",
        "finite-group",
        "--group-sizes",
        "0",
    ]
    result = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == "cokl: error: group_sizes: expected numbers of at least 1, got 0\n"


def test_the_command_leaves_tables_and_figures(capsys, tmp_path):
    sizes = "--clusters=4 --input-dim=6 --actions=20 --correct-actions=3 --train-inputs=200 --test-inputs=100"
    training = "--steps=8 --eval-interval=4 --batch-size=16 --pretrain-steps=20 --hidden 8 8 --recovery-steps 4"
    with pytest.raises(SystemExit) as ended:
        main(f"bandit finite-group --preset quick --jobs 1 --out {tmp_path} {sizes} {training}".split())
    assert ended.value.code == 0
    assert "times R_G's prediction" in capsys.readouterr().out
    tables = ("final", "recovery", "recovery_by_group_size", "recovery_by_step")
    for name in (*TABLES, "results.md", *(f"tables/{table}.csv" for table in tables)):
        assert (tmp_path / name).stat().st_size > 0
    for name in ("finite_group_metrics", "finite_group_recovery"):
        assert (tmp_path / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_the_papers_preset_holds_these_group_sizes():
    config = PRESETS["paper"]
    assert config.group_sizes == (1, 2, 4, 8, 16, 64)
    assert config.optimizer_steps == (1, 4)
