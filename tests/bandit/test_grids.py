"""The experiments that change another one from cell to cell: what each cell trains, against plain loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from bandit.calibration import config as calibration_settings
from bandit.calibration.config import CalibrationConfig
from bandit.calibration.run import calibration
from bandit.config import EnvironmentConfig
from bandit.engine.two_tasks.grid import final_rows
from bandit.phase.config import EXPERIMENTS, KNOBS, Diagram
from bandit.phase.run import run
from bandit.robustness.config import RobustnessConfig
from bandit.robustness.run import robustness
from bandit.shift.config import ShiftConfig
from bandit.sweep.config import SweepConfig
from cokl.support.experiment import Execution
from tests.bandit.same import assert_same
from tests.oracles import shift_lab, sweep_lab

ENVIRONMENT = EnvironmentConfig(
    clusters=2, input_dim=3, actions=6, correct_actions=2, train_inputs=12, test_inputs=8, correct_mass=0.4
)
SIZES: dict[str, Any] = {
    "batch_size": 3,
    "group_size": 3,
    "reference_group_size": 2,
    "buffer_size": 6,
    "kl_groups": 4,
    "hidden": (5, 4),
    "pretrain_steps": 8,
    "pretrain_batch_size": 6,
    "prior_steps": 3,
    "learning_rate": 0.03,
    "new_learning_rate": 0.1,
    "dtype": "float64",
    "environment": ENVIRONMENT,
}


def last_rows(config: ShiftConfig) -> pd.DataFrame:
    """Of every run of the plain loop."""
    table = shift_lab.table(config)
    return table[(table["step"] == config.steps) | (table["method"] == "base")]


@pytest.mark.parametrize(
    ("name", "other"),
    [("seed", 1), ("role", "selection"), ("mode", "exact"), ("method", "none"), ("beta", 0.1), ("kl_prompts", 8)],
)
def test_a_run_that_ends_early_has_its_own_last_row(name, other):
    """Diverged at step 4: what is left out of means for it is found by this row."""
    run = {"seed": 0, "role": "report", "mode": "sampled", "method": "cokl", "beta": 1.0, "kl_prompts": 16}
    early = {**run, name: other}
    lines = [{**run, "step": 0}, {**run, "step": 10}, {**early, "step": 0}, {**early, "step": 4}]
    assert final_rows(pd.DataFrame(lines)).to_dict("records") == [lines[1], lines[3]]


def in_order(table: pd.DataFrame, cell: list[str]) -> pd.DataFrame:
    """By what tells rows apart."""
    keys = [*cell, "seed", "mode", "method", "beta", "kl_prompts"]
    assert not table.duplicated(keys).any()
    return table.sort_values(keys, ignore_index=True)


def test_every_cell_of_a_map_trains_the_task_shift_with_its_two_knobs_set(tmp_path):
    experiment = ShiftConfig(
        mode="exact",
        methods=("none", "cokl", "reverse_kl"),
        betas=(0.1, 1.0),
        seeds=2,
        selection_seeds=1,
        steps=3,
        eval_interval=2,
        kl_sweep_methods=(),
        **SIZES,
    )
    diagram = Diagram("cluster_overlap", "correct_modes", (0.9, 0.2), (2, 3), experiment)
    cells = run([diagram], Execution(out=tmp_path, jobs=1), progress=False)[diagram.name]
    expected = [
        last_rows(replace(experiment, cluster_overlap=x, environment=replace(ENVIRONMENT, correct_actions=y))).assign(
            x=x, y=y
        )
        for x in (0.2, 0.9)
        for y in (2, 3)
    ]
    made = pd.read_parquet(tmp_path / diagram.name / "phase.parquet")
    assert_same(in_order(made, ["x", "y"]), in_order(pd.concat(expected), ["x", "y"]))
    for cell, rows in zip(cells.to_dict("records"), expected, strict=True):
        base = rows[(rows["method"] == "base") & (rows["role"] == "report")]
        assert (cell["x"], cell["y"]) == (rows["x"].iloc[0], rows["y"].iloc[0])
        assert cell["base_correct"] == pytest.approx(base["prior_correct"].mean())


def test_a_knob_sets_what_its_name_says_and_nothing_else():
    plain = EXPERIMENTS["quick"]
    expected = {
        "reference_correctness": replace(plain, prior_steps=7),
        "correct_modes": replace(plain, environment=replace(plain.environment, correct_actions=7)),
        "cluster_overlap": replace(plain, cluster_overlap=0.7),
        "correct_overlap": replace(plain, correct_overlap=0.7),
        "group_size": replace(plain, group_size=7, reference_group_size=7),
        "width": replace(plain, hidden=(7, 7)),
        "buffer_size": replace(plain, buffer_size=7),
        "correct_mass": replace(plain, environment=replace(plain.environment, correct_mass=0.7)),
    }
    shares = ("cluster_overlap", "correct_overlap", "correct_mass")
    assert {name: knob.apply(plain, 0.7 if name in shares else 7) for name, knob in KNOBS.items()} == expected


def test_every_setting_of_the_search_trains_the_task_shift_with_its_changes(tmp_path, monkeypatch):
    """Replay, a tenth of term 2 and all of it at every coefficient, w/o term 1 at those of the shares too."""
    for cell in ("slow-same", "temperature-0.7"):
        changed = {**SIZES, **calibration_settings.CELLS[cell]}
        monkeypatch.setitem(calibration_settings.CELLS, cell, changed)
    config = CalibrationConfig(
        cells=("temperature-0.7", "slow-same"),
        shares=(0.1, 1.0),
        betas=(0.5, 1.0),
        seeds=2,
        first_seed=3,
        selection_seeds=1,
        steps=3,
    )
    made = calibration(config, Execution(out=tmp_path, jobs=1), progress=False)
    plain = ShiftConfig(
        mode="sampled",
        methods=(
            "none",
            "correct_forward_kl",
            "0.1cokl+0.9correct_forward_kl",
            "cokl",
            "cokl_without_term1",
        ),
        betas=(0.1, 0.5, 1.0),
        seeds=2,
        first_seed=3,
        selection_seeds=1,
        steps=3,
        eval_interval=3,
        kl_sweep_methods=(),
        **SIZES,
    )
    cells = {
        "slow-same": replace(plain, new_learning_rate=3e-4, cluster_overlap=1.0),
        "temperature-0.7": replace(plain, evaluation_temperature=0.7),
    }
    expected = pd.concat([last_rows(experiment).assign(cell=cell) for cell, experiment in cells.items()])
    few = (expected["beta"] == 0.1) & (expected["method"] != "cokl_without_term1")
    assert_same(in_order(made, ["cell"]), in_order(expected[~few], ["cell"]))


def test_every_alternative_trains_the_sweep_with_one_assumption_changed_near_the_match(tmp_path):
    sweep = SweepConfig(
        methods=("none", "cokl", "entropy"),
        betas=(0.02, 0.1, 0.5, 2.0),
        seeds=2,
        steps=4,
        eval_interval=3,
        batch_size=3,
        learning_rate=0.1,
        hidden=(5, 4),
        pretrain_steps=6,
        coverage_draws=3,
        dtype="float64",
        environment=ENVIRONMENT,
    )
    fields = ("adam_betas", "balanced_clusters", "minibatch")
    tables = robustness(RobustnessConfig(sweep, 1, fields), Execution(out=tmp_path, jobs=1), progress=False)
    whole = sweep_lab.table(sweep)
    rows: Any = whole.to_dict("records")
    matched, grid = sweep_lab.matched(rows), [0.02, 0.1, 0.5, 2.0]

    def near(method: str, beta: float) -> bool:
        return method in ("none", "reference") or abs(grid.index(beta) - grid.index(matched[method])) <= 1

    kept = [near(method, beta) for method, beta in zip(whole["method"], whole["beta"], strict=True)]
    assert not all(kept)
    assert_same(tables.pop("base").reset_index(drop=True), whole[kept].reset_index(drop=True))
    alternatives = {
        "adam_betas-0.9-0.95": replace(sweep, adam_betas=(0.9, 0.95)),
        "adam_betas-0.9-0.99": replace(sweep, adam_betas=(0.9, 0.99)),
        "balanced_clusters-True": replace(sweep, environment=replace(ENVIRONMENT, balanced_clusters=True)),
        "minibatch-epochs": replace(sweep, minibatch="epochs"),
    }
    assert list(tables) == list(alternatives)
    for name, alternative in alternatives.items():
        assert_same(tables[name].reset_index(drop=True), sweep_lab.table(alternative, near))
