"""The tables against loops over the rows; coefficients never see a reported seed; verdicts turn with the data."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bandit.shift import claims, report, score
from bandit.shift.config import PRESETS
from cokl.support import statistics
from cokl.support.errors import InputError
from tests.bandit.shift.tables import BASE, NONE, POINTS, SEEDS, shift_table


def last_value(table: pd.DataFrame, seed: int, method: str, beta: float, column: str, prompts: int = 16) -> float:
    """A run's value at its last step, by walking through its rows."""
    found, at_step = float("nan"), -1
    run = table[(table["seed"] == seed) & (table["method"] == method) & (table["beta"] == beta)]
    for step, batch, value in zip(run["step"], run["kl_prompts"], run[column], strict=True):
        if (method in ("base", "none") or batch == prompts) and step > at_step:
            found, at_step = value, step
    return found


def only(frame: pd.DataFrame, **where: str) -> dict[str, Any]:
    """The one row of a table with these values."""
    (row,) = [row for row in frame.to_dict("records") if all(row[name] == value for name, value in where.items())]
    return {str(name): value for name, value in row.items()}


def naive_scores(table: pd.DataFrame, role: str, method: str, beta: float, prompts: int = 16) -> tuple[float, float]:
    """Retention and adaptation of means over seeds, straight from E.5."""

    def mean(name: str, at: float, column: str) -> float:
        return float(np.mean([last_value(table, seed, name, at, column, prompts) for seed in SEEDS[role]]))

    prior, base, none = (mean(n, b, "prior_correct") for n, b in ((method, beta), ("base", 0.0), ("none", 0.0)))
    new, new_base, new_none = (mean(n, b, "new_correct") for n, b in ((method, beta), ("base", 0.0), ("none", 0.0)))
    return 100 * (prior - none) / (base - none), 100 * (new - new_base) / (new_none - new_base)


def test_scores_average_to_the_ratio_of_means():
    table = shift_table(jitter=0.03)
    made = report.tables(table)["beta_search"]
    for row in made.to_dict("records"):
        expected = naive_scores(table, row["role"], row["method"], row["beta"])
        np.testing.assert_allclose((row["retention"], row["adaptation"]), expected, atol=1e-9)
        assert row["overall"] == pytest.approx(sum(expected) / 2, abs=1e-9)


def test_intervals_are_those_of_the_delta_method():
    table = shift_table(jitter=0.03)
    made = report.tables(table)["table1_normalized"]
    cokl = only(made, setting="best", method="cokl")
    forgotten, residuals = [], []
    for seed in SEEDS["report"]:
        base = last_value(table, seed, "base", 0.0, "prior_correct")
        none = last_value(table, seed, "none", 0.0, "prior_correct")
        forgotten.append(base - none)
        value = last_value(table, seed, "cokl", cokl["beta"], "prior_correct")
        residuals.append(value - none - cokl["retention"] / 100 * (base - none))
    count = len(residuals)
    half_width = 100 * stats.t.ppf(0.975, count - 1) * np.std(residuals, ddof=1) / np.sqrt(count) / np.mean(forgotten)
    assert cokl["retention_half_width"] == pytest.approx(half_width)
    for method, (retention, adaptation) in {"base": (100, 0), "none": (0, 100)}.items():
        anchor = only(made, setting="best", method=method)
        np.testing.assert_allclose((anchor["retention"], anchor["adaptation"]), (retention, adaptation), atol=1e-9)
        half_widths = anchor["retention_half_width"], anchor["adaptation_half_width"]
        np.testing.assert_allclose(half_widths, 0, atol=1e-9)


def test_best_and_matched_coefficients_by_a_walk_through_the_grid():
    table = shift_table()
    scored = score.score(table)
    best = score.best_coefficients(scored).set_index("method")
    matched = score.matched_coefficients(scored).set_index("method")
    for method, betas in POINTS.items():
        values = {beta: naive_scores(table, "selection", method, beta) for beta in betas}
        assert best.loc[method, "beta"] == max(values, key=lambda beta: sum(values[beta]))
        if method == "none":
            assert method not in matched.index
            continue
        nearest = min(values, key=lambda beta: abs(values[beta][1] - score.MATCHED_ADAPTATION))
        assert matched.loc[method, "beta"] == nearest
        assert matched.loc[method, "missed"] == (abs(values[nearest][1] - score.MATCHED_ADAPTATION) > 5)
        assert best.loc[method, "edge"] == (best.loc[method, "beta"] in (min(betas), max(betas)))


def test_equal_adaptation_by_a_walk_between_coefficients():
    table = shift_table(jitter=0.01)
    made = score.at_equal_adaptation(score.score(table))
    assert not set(made["method"]) & {"base", "none"}
    scored = score.score(table)
    for method in ("cokl", "reverse_kl", "cokl_without_term1"):
        ends = [(beta, *naive_scores(table, "report", method, beta)) for beta in (0.1, 1.0, 10.0)]
        low, high = ends[:2] if ends[1][2] <= 90 else ends[1:]
        weight = (low[2] - 90) / (low[2] - high[2])
        found = made[made["method"] == method]
        assert set(zip(found["beta_below"], found["beta_above"], strict=True)) == {(low[0], high[0])}
        assert found["retention"].mean() == pytest.approx((1 - weight) * low[1] + weight * high[1])
        # A seed's part is its influence: how far the mean moves when the seed weighs a little more.
        for seed in SEEDS["report"]:
            rows = scored[(scored["method"] == method) & (scored["step"] == 20) & (scored["role"] == "report")]
            weights = np.where(rows["seed"] == seed, 1 + 1e-6, 1.0)
            heavier = _crossing(rows, weights, low[0], high[0])
            share = 1e-6 / (len(SEEDS["report"]) + 1e-6)
            mean = found["retention"].mean()
            (own,) = found.loc[found["seed"] == seed, "retention"]
            assert (heavier - mean) / share == pytest.approx(own - mean, abs=1e-3)


def test_a_coefficient_that_adapts_by_exactly_90_is_the_point_itself():
    ends = {0.1: (10.0, 95.0), 1.0: (40.0, 90.0)}
    rows = [
        {"mode": "exact", "method": "cokl", "kl_prompts": 16, "step": 20, "role": role, "seed": seed, "beta": beta}
        | dict(zip(("retention", "adaptation"), at, strict=True))
        for role, seeds in SEEDS.items()
        for seed in seeds
        for beta, at in ends.items()
    ]
    made = score.at_equal_adaptation(pd.DataFrame(rows))
    assert list(made["retention"]) == [40.0] * len(SEEDS["report"])


def _crossing(rows: pd.DataFrame, weights: np.ndarray, low: float, high: float) -> float:
    """Retention where the weighted mean adaptation is 90 on the line between two coefficients."""
    points = []
    for beta in (low, high):
        chosen = (rows["beta"] == beta) & (rows["kl_prompts"] == 16)
        points.append(np.average(rows.loc[chosen, ["retention", "adaptation"]], axis=0, weights=weights[chosen]))
    (r0, a0), (r1, a1) = points
    return r0 + (r1 - r0) * (90 - a0) / (a1 - a0)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-3, 10))
def test_selection_never_sees_a_reported_seed(seed: int, scale: float):
    table = shift_table()
    spoilt = table.copy()
    reported = spoilt["role"] == "report"
    noise = np.random.default_rng(seed)
    for column in ("prior_correct", "new_correct"):
        spoilt.loc[reported, column] += scale * noise.standard_normal(int(reported.sum()))
    for choose in (score.best_coefficients, score.matched_coefficients):
        pd.testing.assert_frame_equal(choose(score.score(table)), choose(score.score(spoilt)))
    kept = table[table["role"] == "selection"]
    pd.testing.assert_frame_equal(
        score.best_coefficients(score.score(kept)), score.best_coefficients(score.score(table))
    )


def test_decomposition_and_batches_and_zero_correct_by_loops():
    table = shift_table()
    made = report.tables(table)
    row = only(made["decomposition"], setting="best", method="none")
    for column in report.DRIFTS:
        expected = np.mean([last_value(table, seed, "none", 0.0, column) for seed in SEEDS["report"]])
        assert row[column] == pytest.approx(expected)
    shares = [
        last_value(table, seed, "none", 0.0, "correct_drift")
        / (last_value(table, seed, "none", 0.0, "correct_drift") + last_value(table, seed, "none", 0.0, "mass_drift"))
        for seed in SEEDS["report"]
    ]
    assert row["correct_share"] == pytest.approx(np.mean(shares))
    batch = made["kl_batch"]
    assert list(batch["kl_prompts"]) == [8, 16, 32]
    for line in batch.to_dict("records"):
        assert line["retention"] == pytest.approx(naive_scores(table, "report", "cokl", 1.0, line["kl_prompts"])[0])
    rates = []
    for record in table.to_dict("records"):
        run = (record["method"], record["beta"], record["kl_prompts"], record["role"])
        if run == ("cokl", 1.0, 16, "report") and record["step"] > 0:
            rates.append(record["zero_correct_rate"])
    zero = only(made["zero_correct"], setting="best", method="cokl")
    assert zero["zero_correct_rate"] == pytest.approx(np.mean(rates))


def test_the_files_hold_the_tables_and_no_negative_zero(tmp_path):
    table = shift_table()
    table.loc[table["method"] == "none", "incorrect_drift"] = -1e-12
    shown = report.write(table, PRESETS["paper"], tmp_path)
    for name, frame in report.tables(table).items():
        text = (tmp_path / f"{name}.csv").read_text()
        read = pd.read_csv(tmp_path / f"{name}.csv")
        assert list(read.columns) == list(frame.columns)
        numbers = frame.select_dtypes("float")
        np.testing.assert_allclose(read[list(numbers)], numbers, rtol=1e-4, atol=1e-8)
        assert "-0," not in text
        assert ",-0\n" not in text
    page = (tmp_path / "results.md").read_text()
    assert "-0.000" not in page
    assert "±" in page
    assert statistics.with_spread(-1e-9, 0.01, 3) == "0.000 ± 0.010"
    assert "CoKL" in shown


def test_a_table_without_anchors_or_selection_seeds_says_so():
    table = shift_table()
    with pytest.raises(InputError, match="add none to the methods"):
        report.tables(table[table["method"] != "none"])
    with pytest.raises(InputError, match="no selection seeds"):
        report.tables(table[table["role"] == "report"])


def test_below_four_seeds_nothing_is_judged_and_the_screen_says_why(tmp_path):
    table = shift_table()
    few = table[~table["seed"].isin((3, 4))]
    assert {claim.verdict for claim in claims.judge(score.score(few))} == {None}
    shown = report.write(few, PRESETS["paper"], tmp_path)
    for text in (shown, (tmp_path / "results.md").read_text()):
        assert "No verdicts: 3 reported seeds are too few; a verdict takes at least 4." in text
        assert "held" not in text.lower().replace("which held", "")
    for text in (shown, (tmp_path / "results.md").read_text()):
        assert "±" in text
    assert "No verdicts" not in report.write(table, PRESETS["paper"], tmp_path)


def test_a_sweep_at_a_coefficient_outside_the_grid_changes_no_other_table():
    table = shift_table()
    swept = table[(table["method"] == "cokl") & (table["beta"] == 1.0) & (table["role"] == "report")]
    more = pd.concat([table, swept.assign(beta=0.5)], ignore_index=True)
    for name, made in report.tables(table).items():
        if name != "kl_batch":
            pd.testing.assert_frame_equal(made, report.tables(more)[name])
    assert claims.judge(score.score(more))


def test_the_main_batch_of_a_single_coefficient_is_the_one_that_selection_has():
    table = shift_table(
        {method: {beta: POINTS[method][beta] for beta in {0.0, 1.0} & {*POINTS[method]}} for method in POINTS}
    )
    swept = table[(table["method"] == "reverse_kl") & (table["role"] == "report")].assign(kl_prompts=8)
    rows = score.main_rows(pd.concat([table, swept]))
    assert set(rows.loc[rows["method"] == "reverse_kl", "kl_prompts"]) == {16}


def test_anchors_that_noise_hides_are_said(tmp_path):
    lost = {**POINTS, "none": {0.0: (BASE[0], NONE[1], 0.1, 0.1)}}
    assert "WARNING" in report.write(shift_table(lost, jitter=0.05), PRESETS["paper"], tmp_path)
    assert "WARNING" not in report.write(shift_table(), PRESETS["paper"], tmp_path)


@pytest.mark.parametrize("wrong", [{"methods": ("cokl", "forward_kl")}, {"methods": ("none",)}, {"selection_seeds": 0}])
def test_what_could_not_be_scored_is_refused_before_training(wrong):
    config = dataclasses.replace(PRESETS["quick"], **wrong)
    with pytest.raises(InputError, match=next(iter(wrong))):
        report.require_scores(config.methods, config.selection_seeds)


def test_rates_are_of_the_prompts_that_their_buffer_holds():
    """What compares given a correct answer learns from prompts that have one alone; a full KL from all."""
    rates = report.tables(shift_table())["zero_correct"]
    of = dict(zip(rates["method"], rates["buffer"], strict=True))
    assert [of[name] for name in ("cokl", "correct_forward_kl", "reverse_kl", "none")] == [
        *["filtered"] * 2,
        *["all"] * 2,
    ]
