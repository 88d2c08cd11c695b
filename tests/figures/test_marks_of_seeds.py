"""Marks of single seeds, bands and batches, against the rows of a table that they are drawn from."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pandas as pd
import pytest

from bandit.finite_group import figures as finite_group
from bandit.shift import analysis as report
from bandit.shift import figures as shift
from bandit.shift.config import PRESETS
from bandit.sweep.figures import dynamics
from tests.bandit.shift.tables import SEEDS, shift_table
from tests.bandit.sweep.test_claims import GOOD, sweep_table
from tests.figures.test_marks import half_width, picked, seeds_scores

SIDES = (("retention", "first"), ("adaptation", "second"))


def check(mark: dict, x: float, values: list[float]) -> None:
    """At the mean of the reported seeds, with the ends of their interval."""
    mean, half = statistics.mean(values), half_width(values)
    assert [mark["x"], mark["y"], mark["low"], mark["high"]] == pytest.approx([x, mean, mean - half, mean + half])


@pytest.mark.parametrize("method", ["cokl", "reverse_kl"])
def test_scores_by_coefficient_have_the_bands_of_the_reported_seeds(method):
    table = shift_table(jitter=0.02)
    marks = shift.beta(report.tables(table)["beta_search"]).marks
    for name, side in SIDES:
        shown = picked(marks, panel=method, style=f"{method} {side}", kind="band")
        assert shown["x"].is_monotonic_increasing
        for mark in shown.to_dict("records"):
            check(mark, mark["x"], seeds_scores(table, method, mark["x"])[name])


def test_batches_have_a_point_for_each_size_in_each_mode():
    """The sampled half of the table is another one, so that modes cannot be taken for each other."""
    sampled = shift_table(jitter=0.03).assign(mode="sampled")
    table = pd.concat([shift_table(jitter=0.02), sampled], ignore_index=True)
    marks = shift.kl_batch(report.tables(table)["kl_batch"]).marks
    assert set(marks["panel"]) == {"exact retention", "exact adaptation", "sampled retention", "sampled adaptation"}
    for mode in ("exact", "sampled"):
        of_mode = table[table["mode"] == mode]
        for name, _ in SIDES:
            points = picked(marks, panel=f"{mode} {name}", method="cokl", kind="line").to_dict("records")
            for size, point in zip((8, 16, 32), points, strict=True):
                others = (of_mode["method"] != "cokl") | (of_mode["kl_prompts"] == size)
                as_main = of_mode[others].assign(kl_prompts=of_mode["kl_prompts"].clip(upper=16).where(
                    of_mode["method"] != "cokl", 16))  # fmt: skip
                check(point, size, seeds_scores(as_main, "cokl", 1.0)[name])


def test_few_seeds_are_each_reported_seed_and_no_band():
    table = shift_table(jitter=0.02)
    table = table[(table["role"] == "selection") | (table["seed"] < 2)]
    drawn = shift.draw_all(table, PRESETS["paper"])
    marks = drawn["shift_dynamics_exact"].marks
    best = report.tables(table)["dynamics"].set_index("method")["beta"].to_dict()["cokl"]
    for column, side in (("prior_correct", "first"), ("new_correct", "second")):
        shown = picked(marks, panel="cokl", style=f"cokl {side}", kind="seed")
        assert set(shown["run"]) == {0, 1}
        for seed, line in shown.groupby("run"):
            rows = table[(table["method"] == "cokl") & (table["beta"] == best) & (table["seed"] == seed)]
            rows = rows[rows["kl_prompts"] == 16].sort_values("step")
            np.testing.assert_allclose(line[["x", "y"]], rows[["step", column]])
        assert picked(marks, panel="cokl", style=f"cokl {side}", kind="band")[["low", "high"]].isna().all(axis=None)
    ends = picked(drawn["shift_beta_exact"].marks, panel="reverse_kl", kind="seed")
    assert set(ends["run"]) == {0, 1}
    assert len(ends) == 2 * 2 * 5


def test_four_reported_seeds_are_enough_for_bands():
    table = shift_table()
    drawn = shift.draw_all(table[(table["role"] == "selection") | (table["seed"] < 4)], PRESETS["paper"])
    for name in ("shift_dynamics_exact", "shift_beta_exact"):
        ours = picked(drawn[name].marks, panel="cokl", method="cokl")
        assert "seed" not in set(ours["kind"])
        assert picked(ours, kind="band")[["low", "high"]].notna().all(axis=None)


def test_grpo_lies_in_grey_behind_every_method():
    table = shift_table(jitter=0.02)
    marks = shift.dynamics(report.tables(table)["dynamics"]).marks
    rows = table[(table["method"] == "none") & table["seed"].isin(SEEDS["report"]) & (table["role"] == "report")]
    for panel in ("cokl", "forward_kl"):
        for column, style in (("prior_correct", "grpo"), ("new_correct", "grpo_dashed")):
            line = picked(marks, panel=panel, style=style)
            means = [rows.loc[rows["step"] == step, column].mean() for step in (0, 10, 20)]
            np.testing.assert_allclose(line[["x", "y"]], list(zip((0, 10, 20), means, strict=True)))


def test_a_sweep_of_few_seeds_is_drawn_seed_by_seed():
    table = sweep_table(GOOD, seeds=2)
    table["conditional_kl"] += 0.01 * table["seed"] * table["step"]
    marks = dynamics.drawing(table).marks
    for column in ("coverage_at_64", "conditional_kl"):
        for method, beta in (("none", 0.0), ("cokl", 0.1), ("entropy", 0.001)):
            for seed in range(2):
                rows = table[(table["method"] == method) & (table["beta"] == beta) & (table["seed"] == seed)]
                line = picked(marks, panel=column, method=method, kind="seed", run=seed)
                np.testing.assert_allclose(line[["x", "y"]], rows[["step", column]])
            assert picked(marks, panel=column, method=method, kind="band")["low"].isna().all()


def test_mean_recovery_is_a_point_per_group_size_and_a_line_of_slope_one():
    slopes = pd.DataFrame(
        {
            "method": ["cokl", "cokl", "reverse_kl"], "beta": [0.3, 0.1, 0.3], "groups": ["fresh", "cached", "fresh"],
            "optimizer_steps": [1, 4, 1], "group_size": [2.0, 8.0, math.inf], "predicted": [0.5, 0.2, 0.4],
            "measured": [0.6, 0.1, 0.3],
        }
    )  # fmt: skip
    marks = finite_group.means(slopes).marks
    assert picked(marks, kind="line")[["x", "y"]].to_numpy().tolist() == [[0, 0], [0.5, 0.5]]
    ours = picked(marks, kind="point", method="cokl")
    assert ours[["x", "y"]].to_numpy().tolist() == [[0.5, 0.6], [0.2, 0.1]]
    assert ours["text"].tolist() == ["β = 0.3, fresh groups, mu = 1, G = 2", "β = 0.1, cached groups, mu = 4, G = 8"]
