"""Runs that diverge: marked where it happened, their neighbours untouched, and in no mean."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from bandit import run_sweep
from bandit.engine.divergence import cut_off, divergence_note, warn_of_diverged, without_diverged
from bandit.engine.reference import pretrain, seed_task
from bandit.finite_group import train as finite_group
from bandit.finite_group.analysis import final_table
from bandit.finite_group.config import FiniteGroupConfig
from bandit.finite_group.train import planned_runs as planned_groups
from bandit.shift.config import ShiftConfig
from bandit.shift.scores import score
from bandit.shift.train import ShiftTrainer
from bandit.shift.train import planned_runs as planned_shifts
from bandit.sweep.analysis import Scored, analyse, judge
from bandit.sweep.config import SweepConfig
from bandit.sweep.figures import dynamics, tradeoff
from bandit.sweep.train import planned_runs
from bandit.sweep.train import train_stack as train
from cokl.support.errors import InputError
from cokl.support.results import Execution
from tests.bandit.same import page_and_screen
from tests.bandit.shift.conftest import TINY_SHIFT


def alone(table: pd.DataFrame, beta: float) -> pd.DataFrame:
    return table[table["beta"] == beta].reset_index(drop=True)


EARLY = (1, 2, 3)
"""At the reference many a regularizer's gradient is rounding alone, so that a huge coefficient acts a step later."""


def require_marked(table: pd.DataFrame, beta: float, metrics: list[str], at: int | tuple[int, ...]) -> None:
    """The run's rows are whole up to the one at step `at`, which has no metrics and is the last."""
    rows = alone(table, beta).sort_values("step")
    assert rows["step"].tolist()[-1] in (at if isinstance(at, tuple) else (at,))
    assert rows[metrics].iloc[-1].isna().all()
    assert np.isfinite(rows[metrics].iloc[:-1].to_numpy()).all()


@pytest.fixture
def task(tiny):
    return seed_task(tiny, 0, pretrain(tiny, 0, "cpu", torch.float32))


METRICS = ["p_correct", "coverage_at_64", "coverage_at_64_correct", "conditional_kl"]


@pytest.mark.parametrize("method", ["cokl", "forward_kl", "correct_reverse_kl", "entropy", "cokl_floor"])
@pytest.mark.parametrize("beta", [1e25, 1e38])
def test_a_diverging_run_is_marked_at_its_step_and_touches_no_neighbour(method, beta, tiny, task):
    """In float32 a coefficient of 1e25 overflows the gradient's norm: the run would freeze and look like a result."""
    config = dataclasses.replace(tiny, methods=(method,), betas=(0.01, 0.05, 0.1), seeds=1, eval_interval=7)
    runs = planned_runs(config)
    with torch.no_grad():
        calm = train(config, task, runs)
        table = train(config, task, [runs[0], dataclasses.replace(runs[1], beta=beta), runs[2]])
    require_marked(table, beta, METRICS, at=EARLY)
    for neighbour in (0.01, 0.1):
        pd.testing.assert_frame_equal(alone(table, neighbour), alone(calm, neighbour), check_exact=True)


def test_the_marked_step_is_that_of_the_update_that_failed(tiny, task, monkeypatch):
    """A gradient that turns NaN in the sixth update, between two evaluations."""
    from bandit.engine import exact

    config = dataclasses.replace(tiny, methods=("cokl",), seeds=1)
    honest, calls = exact.loss_gradient, []

    def spoiled(logits, groups, batch):
        calls.append(1)
        gradient = honest(logits, groups, batch)
        if len(calls) == 6:
            gradient[1, 3, 2] = torch.nan
        return gradient

    monkeypatch.setattr("bandit.sweep.train.loss_gradient", spoiled)
    with torch.no_grad():
        table = train(config, task, planned_runs(config))
    require_marked(table, 0.1, METRICS, at=6)
    assert alone(table, 0.1)["step"].tolist() == [0, 6]
    assert alone(table, 0.01)["step"].tolist() == [0, 10, 20]


def test_nan_in_the_reference_marks_every_run_at_the_start(tiny, task):
    config = dataclasses.replace(tiny, methods=("cokl",), seeds=1)
    parameters = task.parameters.clone()
    parameters[-1] = torch.nan
    with torch.no_grad():
        table = train(config, seed_task(config, 0, parameters), planned_runs(config))
    for beta in config.betas:
        require_marked(table, beta, METRICS, at=0)


def test_sampled_runs_of_the_finite_group_lab_diverge_alone(tiny):
    config = FiniteGroupConfig(
        **{**{f.name: getattr(tiny, f.name) for f in dataclasses.fields(tiny)}, "methods": ("cokl", "cokl_floor")},
        group_sizes=(4,),
        reference_groups=("fresh",),
        optimizer_steps=(1,),
    )
    config = dataclasses.replace(config, betas=(0.01, 0.05, 0.1), seeds=1)
    task = seed_task(config, 0, pretrain(config, 0, "cpu", torch.float32))
    for name in config.methods:
        for groups in ("exact", "fresh"):
            runs = [run for run in planned_groups(config) if run.method.name == name and run.groups == groups]
            with torch.no_grad():
                calm = finite_group.train_stack(config, task, runs)
                wild = [runs[0], dataclasses.replace(runs[1], beta=1e38), runs[2]]
                table = finite_group.train_stack(config, task, wild)
            require_marked(table, 1e38, METRICS, at=EARLY)
            for beta in (0.01, 0.1):
                pd.testing.assert_frame_equal(alone(table, beta), alone(calm, beta), check_exact=True)


@pytest.mark.parametrize("mode", ["exact", "sampled"])
def test_runs_of_the_shift_lab_diverge_alone(mode):
    config: ShiftConfig = dataclasses.replace(TINY_SHIFT, mode=mode, methods=("cokl",), betas=(0.01, 0.05, 0.1))
    runs = [run for run in planned_shifts(config) if run.seed == 0][:3]
    assert [run.beta for run in runs] == [0.01, 0.05, 0.1]
    with torch.no_grad():
        trainer = ShiftTrainer(config)
        task = trainer.task(config, 0, trainer.base_parameters(0))
        calm = trainer.train(task, runs)
        table = trainer.train(task, [runs[0], dataclasses.replace(runs[1], beta=1e308), runs[2]])
    require_marked(table, 1e308, ["prior_correct", "new_correct", "conditional_kl", "mass_drift"], at=EARLY)
    for beta in (0.01, 0.1):
        pd.testing.assert_frame_equal(alone(table, beta), alone(calm, beta), check_exact=True)


def test_a_reference_that_diverges_is_named(tiny):
    with pytest.raises(InputError, match="the reference of seed 0 diverged"):
        run_sweep(dataclasses.replace(tiny, pretrain_learning_rate=1e38), Execution(jobs=1), progress=False)


@pytest.fixture
def marked(tiny) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A sweep's table, and the same with one seed's CoKL at beta 0.1 diverged at step 13."""
    table = run_sweep(tiny, Execution(jobs=1), progress=False)
    run = (table["method"] == "cokl") & (table["beta"] == 0.1) & (table["seed"] == 1)
    mark = table[run].iloc[[-1]].assign(step=13, **dict.fromkeys(METRICS, np.nan))
    return table, pd.concat([table[~(run & (table["step"] >= 13))], mark], ignore_index=True)


def test_summaries_leave_the_coefficient_out_and_say_so(marked):
    table, broken = marked
    without = table[~((table["method"] == "cokl") & (table["beta"] == 0.1))]
    judged = [judge(Scored.of(one)) for one in (broken, without, table)]
    assert judged[0] == judged[1] != judged[2]
    text, _ = page_and_screen(analyse({"sweep": broken}, SweepConfig()))
    assert "1 of 10 runs diverged (cokl at beta 0.1, seed 1, at step 13)" in text
    assert "nan" not in text.lower()
    assert "diverged" not in page_and_screen(analyse({"sweep": table}, SweepConfig()))[0]
    for drawing in (tradeoff(broken), dynamics(Scored.of(broken))):
        assert "1 of 10 runs diverged" in drawing.note
    assert tradeoff(table).note == ""


def test_nothing_left_is_said_once(marked, capsys):
    _, broken = marked
    left = broken[(broken["beta"] == 0.1) & (broken["seed"] == 1)].query("method == 'cokl'")
    warn_of_diverged(left, "p_correct", ("method", "beta"))
    assert capsys.readouterr().err == ""
    with pytest.raises(InputError, match="nothing is left to compare: 1 of 1 runs diverged"):
        without_diverged(left, "p_correct", ("method", "beta"))
    warn_of_diverged(broken, "p_correct", ("method", "beta"))
    assert capsys.readouterr().err.startswith("warning: 1 of ")


def test_shift_scores_leave_diverged_coefficients_out_and_need_grpo():
    from bandit.shift.train import train as run_shift

    config = dataclasses.replace(TINY_SHIFT, mode="exact", methods=("none", "cokl"))
    table = run_shift(config, Execution(jobs=1))["shift"]

    def spoiled(rows: pd.Series) -> pd.DataFrame:
        last = rows & (table["seed"] == 0) & (table["step"] == table["step"].max())
        return table.assign(prior_correct=table["prior_correct"].mask(last))

    cokl = (table["method"] == "cokl") & (table["beta"] == table["beta"].max())
    pd.testing.assert_frame_equal(score(spoiled(cokl)), score(table[~cokl]))
    with pytest.raises(InputError, match="GRPO w/o KL, which all scores relate to, diverged"):
        score(spoiled(table["method"] == "none"))


def test_finite_group_means_leave_out_what_has_no_exact_counterpart():
    rows = [
        {"seed": s, "method": "cokl", "beta": b, "groups": g, "group_size": 4.0 if g == "fresh" else np.inf,
         "optimizer_steps": 1, "step": 10, "p_correct": 0.5, "coverage_at_64": 0.5, "conditional_kl": 0.1}
        for s in (0, 1) for b in (0.1, 0.3) for g in ("exact", "fresh")
    ]  # fmt: skip
    metrics = pd.DataFrame(rows)
    lost = (metrics["seed"] == 1) & (metrics["beta"] == 0.3) & (metrics["groups"] == "exact")
    table = final_table(metrics.assign(p_correct=metrics["p_correct"].mask(lost)))
    assert table["beta"].unique().tolist() == [0.1]


def test_metrics_that_are_not_finite_cut_a_run_off_too():
    frames = [
        pd.DataFrame({"beta": [0.1, 0.3], "step": step, "p_correct": [0.5, np.inf if step == 20 else 0.5]})
        for step in (0, 10, 20, 30)
    ]
    table = cut_off(frames, [0, 0], ("beta", "step"))
    assert table[table["beta"] == 0.1]["step"].tolist() == [0, 10, 20, 30]
    assert table[table["beta"] == 0.3]["step"].tolist() == [0, 10, 20]
    assert table[table["beta"] == 0.3]["p_correct"].isna().tolist() == [False, False, True]


@pytest.mark.parametrize("lost", [5, 7])
def test_a_note_names_five_diverged_runs_and_counts_the_others(lost):
    rows = [
        {"seed": seed, "method": "cokl", "beta": 0.1, "step": 3, "p": np.nan if seed < lost else 0.5}
        for seed in range(9)
    ]
    note = divergence_note(pd.DataFrame(rows), "p", ("method", "beta"))
    named = "; ".join(f"cokl at beta 0.1, seed {seed}, at step 3" for seed in range(5))
    others = "; and 2 more" if lost == 7 else ""
    assert note == f"{lost} of 9 runs diverged ({named}{others}); means leave out their coefficients, all seeds of them"
