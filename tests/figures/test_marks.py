"""What each lab's figures draw, against the results that they are drawn from, recomputed here without the lab."""

from __future__ import annotations

import statistics

import numpy as np
import pandas as pd
import pytest

from bandit.finite_group import figures as finite_group
from bandit.finite_group.analysis import final_table
from bandit.shift import figures as shift
from bandit.shift.analysis import tables_of
from bandit.shift.scores import Scored as ScoredShift
from bandit.sweep.analysis import Scored
from bandit.sweep.figures import dynamics, tradeoff
from llm_bridge.report import figures as llm
from tests.bandit.finite_group.tables import made_metrics
from tests.bandit.shift.tables import POINTS, SEEDS, shift_table
from tests.bandit.sweep.tables import GOOD, sweep_table
from tests.llm_bridge.report.test_report import results
from tests.oracles.intervals import half_width


def picked(marks: pd.DataFrame, **values: object) -> pd.DataFrame:
    """The marks with these values, of which there must be some."""
    for name, value in values.items():
        marks = marks[marks[name] == value]
    assert len(marks), values
    return marks


def shift_tables_of(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What the lab's figures are drawn from."""
    return tables_of(ScoredShift.of(table))


def noisy_sweep() -> pd.DataFrame:
    """Four seeds, no two numbers alike, of which the coefficients do not change places."""
    table, rng = sweep_table(GOOD, seeds=4), np.random.default_rng(2)
    columns = ["p_correct", "coverage_at_64", "coverage_at_64_correct", "conditional_kl"]
    table[columns] += rng.uniform(0, 1e-3, (len(table), 4))
    return pd.concat([table.query("method == 'none' and step == 0").assign(method="reference"), table])


@pytest.mark.parametrize("column", ["coverage_at_64", "conditional_kl"])
def test_the_tradeoff_is_means_and_intervals_of_the_last_step(column):
    table = noisy_sweep()
    marks = tradeoff(table).marks
    for method, betas in GOOD.items():
        points = picked(marks, panel=column, method=method)
        assert len(points) == len(betas)
        for beta, point in zip(sorted(betas), points.to_dict("records"), strict=True):
            rows = table[(table["method"] == method) & (table["beta"] == beta) & (table["step"] == 200)]
            for name, low, high, of in (("x", "x_low", "x_high", "p_correct"), ("y", "low", "high", column)):
                values = rows[of].tolist()
                mean, spread = statistics.mean(values), half_width(values)
                assert [point[name], point[low], point[high]] == pytest.approx([mean, mean - spread, mean + spread])
            assert point["text"] == f"β = {beta:g}"
    star = picked(marks, panel=column, method="reference")
    reference = table[table["method"] == "reference"]
    expected = [reference["p_correct"].mean(), reference[column].mean()]
    assert star[["x", "y"]].to_numpy().ravel() == pytest.approx(expected)


def test_few_seeds_have_no_bars_in_the_tradeoff():
    """An interval over two or three seeds is as wide as luck has it."""
    table = noisy_sweep().query("seed < 3")
    assert tradeoff(table).marks[["x_low", "x_high", "low", "high"]].isna().all(axis=None)
    assert "intervals" not in tradeoff(table).caption


@pytest.mark.parametrize("column", ["coverage_at_64", "conditional_kl"])
def test_dynamics_are_means_and_intervals_of_each_step(column):
    table = noisy_sweep()
    marks = dynamics(Scored.of(table)).marks
    for method, beta in (("none", 0.0), ("cokl", 0.1), ("forward_kl", 0.001)):
        rows = table[(table["method"] == method) & (table["beta"] == beta)]
        band = picked(marks, panel=column, method=method, kind="band")
        assert band["x"].tolist() == [0, 100, 200]
        for mark in band.to_dict("records"):
            values = rows.loc[rows["step"] == mark["x"], column].tolist()
            mean, spread = statistics.mean(values), half_width(values)
            assert [mark["y"], mark["low"], mark["high"]] == pytest.approx([mean, mean - spread, mean + spread])


def seeds_scores(table: pd.DataFrame, method: str, beta: float) -> dict[str, list[float]]:
    """Retention and adaptation of each reported seed: linearised around the ratio of means, as the score promises."""
    last = table[(table["role"] == "report") & ((table["step"] == 20) | (table["method"] == "base"))]
    main = last[last["kl_prompts"].isin([0, 16])]

    def ends(which: str, coefficient: float, column: str) -> np.ndarray:
        rows = main[(main["method"] == which) & (main["beta"] == coefficient)].sort_values("seed")
        assert len(rows) == len(SEEDS["report"])
        return rows[column].to_numpy()

    scores = {}
    for name, column, zero, hundred in (
        ("retention", "prior_correct", "none", "base"),
        ("adaptation", "new_correct", "base", "none"),
    ):
        value, low, high = ends(method, beta, column), ends(zero, 0.0, column), ends(hundred, 0.0, column)
        ratio = (value.mean() - low.mean()) / (high.mean() - low.mean())
        scores[name] = (100 * (ratio + (value - low - ratio * (high - low)) / (high.mean() - low.mean()))).tolist()
    return scores


def check_frontier(points: pd.DataFrame, table: pd.DataFrame, method: str) -> None:
    """A point per coefficient with both intervals."""
    assert len(points) == len(POINTS[method])
    for beta, point in zip(sorted(POINTS[method]), points.to_dict("records"), strict=True):
        scores = seeds_scores(table, method, beta)
        for name, low, high, of in (("x", "x_low", "x_high", "adaptation"), ("y", "low", "high", "retention")):
            mean, half = statistics.mean(scores[of]), half_width(scores[of])
            assert [point[name], point[low], point[high]] == pytest.approx([mean, mean - half, mean + half])
        assert point["text"].startswith(f"β = {beta:g}, ")


@pytest.mark.parametrize("method", [method for method in POINTS if method != "none"])
def test_the_shift_labs_frontier(method):
    table = shift_table(jitter=0.02)
    search = shift_tables_of(table)["beta_search"]
    panel = picked(shift.tradeoff(search).marks, panel=method)
    check_frontier(picked(panel, kind="line", method=method), table, method)
    chosen = search[(search["method"] == method) & (search["role"] == "report") & search["best"]]["beta"].item()
    ends = {name: statistics.mean(values) for name, values in seeds_scores(table, method, chosen).items()}
    star = picked(panel, style="best")
    assert star[["x", "y"]].to_numpy().ravel() == pytest.approx([ends["adaptation"], ends["retention"]])


def test_a_sweep_of_few_seeds_is_drawn_seed_by_seed():
    table = sweep_table(GOOD, seeds=2)
    table["conditional_kl"] += 0.01 * table["seed"] * table["step"]
    marks = dynamics(Scored.of(table)).marks
    for column in ("coverage_at_64", "conditional_kl"):
        for method, beta in (("none", 0.0), ("cokl", 0.1), ("entropy", 0.001)):
            for seed in range(2):
                rows = table[(table["method"] == method) & (table["beta"] == beta) & (table["seed"] == seed)]
                line = picked(marks, panel=column, method=method, kind="seed", run=seed)
                np.testing.assert_allclose(line[["x", "y"]], rows[["step", column]])
            assert picked(marks, panel=column, method=method, kind="band")["low"].isna().all()


def test_the_finite_group_labs_metrics():
    metrics = made_metrics()
    marks = finite_group.metrics(final_table(metrics), 3).marks
    last = metrics[metrics["step"] == 50]
    for (method, groups, steps), rows in last.groupby(["method", "groups", "optimizer_steps"]):
        for column in ("p_correct", "coverage_at_8", "conditional_kl"):
            of_panel = picked(marks, panel=f"{column}, mu = {steps}", style=f"{method} {groups}")
            for mark, (size, seeds) in zip(of_panel.to_dict("records"), rows.groupby("group_size"), strict=True):
                mean = statistics.mean(seeds[column].tolist())
                assert mark["y"] == pytest.approx(mean)
                if groups == "exact":
                    assert mark["kind"] == "hline"
                    continue
                half = half_width(seeds[column].tolist())
                assert [mark["x"], mark["low"], mark["high"]] == pytest.approx([size, mean - half, mean + half])


def test_the_llm_experiments_dynamics():
    source = results()
    drawn = llm.dynamics(source)
    ours = source.dynamics[source.dynamics["method"] == "cokl"].sort_values("step")
    for panel, values in (
        ("math", ours["math_val"]),
        ("chat", ours["chat_val"]),
        ("last", (ours["math_val"] + ours["chat_val"]) / 2),
    ):
        shown = picked(drawn.marks, panel=panel, method="cokl")
        np.testing.assert_allclose(shown[["x", "y"]], np.column_stack([ours["step"], values]))
    assert f"CoKL {ours['math_val'].iloc[-1]:.1f}" in drawn.caption
