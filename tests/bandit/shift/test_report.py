"""The tables against loops over the rows; coefficients never see a reported seed; verdicts turn with the data."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bandit.shift import claims, report, score
from bandit.shift.config import SHIFT_PRESETS
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
    report.write(table, tmp_path)
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
    assert "CoKL" in report.summary(table)


def test_a_table_without_anchors_or_selection_seeds_says_so():
    table = shift_table()
    with pytest.raises(InputError, match="add none to the methods"):
        report.tables(table[table["method"] != "none"])
    with pytest.raises(InputError, match="no selection seeds"):
        report.tables(table[table["role"] == "report"])


def verdict(points: dict, statement: str, **options) -> str | None:
    """The verdict on the only claim whose statement holds these words."""
    return judged(shift_table(points, **options), statement).verdict


def judged(table: pd.DataFrame, statement: str) -> claims.JudgedClaim:
    """The only claim whose statement holds these words."""
    (claim,) = [claim for claim in claims.judge(score.score(table)) if statement in claim.statement]
    return claim


def changed(method: str, **points: tuple) -> dict:
    """POINTS with a method's coefficients (low, middle, high) replaced."""
    made = copy.deepcopy(POINTS)
    for name, point in points.items():
        made[method][{"low": 0.1, "middle": 1.0, "high": 10.0}[name]] = point
    return made


def swapped(one: str, other: str) -> dict:
    """POINTS with two methods' points exchanged."""
    return {**POINTS, one: POINTS[other], other: POINTS[one]}


STATEMENTS = [
    "higher Overall than every method",
    "replay",
    "less than half",
    "no less than GRPO",
    "term 2",
    "floor",
    "Larger KL",
    "trades off",
    "Reverse",
    "drift within",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_claims_are_held_on_data_that_supports_them(statement: str):
    assert verdict(POINTS, statement) == "held"


@pytest.mark.parametrize(
    ("points", "statement"),
    [
        (swapped("cokl", "reverse_kl"), "higher Overall than every method"),
        (swapped("cokl", "correct_forward_kl"), "replay"),
        (swapped("cokl", "cokl_without_term1"), "less than half"),
        (changed("cokl_without_term1", middle=(0.2, 0.86, 0.5, 1.3)), "no less than GRPO"),
        (swapped("cokl", "cokl_without_term2"), "term 2"),
        (changed("cokl_floor", middle=(0.78, 0.89, 0.1, 0.2), low=(0.78, 0.89, 0.1, 0.2)), "floor"),
        (changed("cokl", low=(0.75, 0.5, 0.1, 0.1), high=(0.5, 0.88, 0.3, 0.4)), "trades off"),
        (
            {**swapped("reverse_kl", "forward_kl"), "correct_reverse_kl": POINTS["correct_forward_kl"]}
            | {"correct_forward_kl": POINTS["correct_reverse_kl"]},
            "Reverse",
        ),
        (
            {**POINTS, "none": {0.0: (*NONE, 1.5, 0.5)}, "cokl": {1.0: (0.7, 0.86, 0.2, 0.1)}},
            "drift within",
        ),
    ],
)
def test_a_verdict_turns_with_the_data(points: dict, statement: str):
    assert verdict(points, statement) == "not held"


def test_the_batch_verdict_turns_with_the_data():
    table = shift_table()
    table["kl_prompts"] = table["kl_prompts"].replace({8: 32, 32: 8})
    assert judged(table, "Larger KL").verdict == "not held"


def test_the_primary_measurement_is_the_sampled_one_at_the_declared_place():
    both = pd.concat([shift_table(), shift_table().assign(mode="sampled")], ignore_index=True)
    found = {claim.statement: claim.primary for claim in claims.judge(score.score(both))}
    assert len(found) == len(STATEMENTS)
    places = [next(primary.where for statement, primary in found.items() if words in statement) for words in STATEMENTS]
    assert places == [
        "sampled, best",
        *["sampled, beta 1"] * 5,
        "sampled",
        "sampled",
        "sampled, best",
        "sampled",
    ]
    assert "at step 20" in judged(both, "drift within").primary.what


def test_the_rival_is_chosen_on_the_selection_seeds():
    table = shift_table()
    spoilt = table.copy()
    praised = (spoilt["role"] == "report") & (spoilt["method"] == "reverse_kl") & (spoilt["step"] > 0)
    spoilt.loc[praised, "prior_correct"] += 0.3
    for judging in (table, spoilt):
        assert "- Forward KL" in judged(judging, "every method").primary.what


def test_noise_leaves_a_claim_undecided_and_modes_can_disagree():
    assert verdict(POINTS, "floor", jitter=0.2) == "undecided"
    turned = shift_table(swapped("cokl", "cokl_without_term2")).assign(mode="sampled")
    both = pd.concat([shift_table(), turned], ignore_index=True)
    claim = judged(both, "term 2")
    assert claim.verdict == "depends"
    found = {measurement.where: verdict for measurement, verdict in claim.verdicts}
    assert (found["exact, best"], found["sampled, best"]) == ("held", "not held")


def measured(mean: float, half_width: float, seeds: int = 5, negligible: float = 0.0) -> claims.Measurement:
    return claims.Measurement("sampled", "x", mean, half_width, seeds, "points", negligible)


def test_a_measurement_is_written_in_its_unit():
    assert str(measured(-0.04, 1.26)) == "sampled: x 0.0 ± 1.3 points"
    nats = claims.Measurement("exact, best", "less drift", 0.12345, 0.01, 5, "nats")
    assert str(nats) == "exact, best: less drift 0.123 ± 0.010 nats"


def test_the_primary_measurement_decides_and_a_decided_opposite_makes_it_depend():
    yes, no, open_ = measured(5, 1), measured(-5, 1), measured(5, 6)
    for primary, secondary, expected in (
        (yes, (), "held"),
        (yes, (open_, yes), "held"),
        (no, (open_,), "not held"),
        (open_, (yes, yes), "undecided"),
        (yes, (open_, no), "depends"),
        (no, (yes,), "depends"),
    ):
        assert claims.JudgedClaim("s", "", primary, secondary).verdict == expected
    assert claims.JudgedClaim("s", "", yes, (open_, yes)).counts == "secondary: 1 held, 1 undecided"


def test_secondary_measurements_are_corrected_for_their_number():
    """An interval that just excludes zero decides alone, and no longer among others that do not decide."""
    just = measured(-1.05, 1)
    assert claims.JudgedClaim("s", "", measured(5, 1), (just,)).verdict == "depends"
    assert claims.JudgedClaim("s", "", measured(5, 1), (just, measured(0.1, 1))).verdict == "held"
    assert claims.JudgedClaim("s", "", just).verdict == "not held"


def test_a_loss_that_is_negligible_does_not_speak_against_a_claim():
    assert claims.JudgedClaim("s", "", measured(-0.5, 0.2, negligible=1)).verdict == "held"
    assert claims.JudgedClaim("s", "", measured(-0.5, 0.7, negligible=1)).verdict == "undecided"
    assert claims.JudgedClaim("s", "", measured(-0.98, 0.01, negligible=1)).verdict == "held"
    assert claims.JudgedClaim("s", "", measured(-1.02, 0.01, negligible=1)).verdict == "not held"


@pytest.mark.parametrize(("prior", "expected"), [(0.49, "held"), (0.51, "not held")])
def test_less_than_half_is_of_what_cokl_retains(prior: float, expected: str):
    """CoKL retains 0.4 of 0.5 at beta 1: half of that is a prior correctness of 0.5."""
    points = changed("cokl_without_term1", middle=(prior, 0.86, 0.5, 1.3))
    primary = judged(shift_table(points), "less than half").primary
    assert (primary.leaning, primary.p_value < 0.05) == (expected, True)


def test_below_four_seeds_nothing_is_judged_and_the_screen_says_why(tmp_path):
    table = shift_table()
    few = table[~table["seed"].isin((3, 4))]
    assert verdict(POINTS, "floor") == "held"
    assert {claim.verdict for claim in claims.judge(score.score(few))} == {None}
    report.write(few, tmp_path)
    for text in (report.summary(few), (tmp_path / "results.md").read_text()):
        assert "No verdicts: 3 reported seeds are for looking; a verdict takes 4." in text
        assert "held" not in text.lower().replace("which held", "")
    for text in (report.summary(table), (tmp_path / "results.md").read_text()):
        assert "±" in text
    assert "No verdicts" not in report.summary(table)


def test_a_cokl_that_retains_nothing_cannot_show_a_collapse():
    points = {**POINTS, "cokl": {1.0: (0.3, 0.9, 0.5, 1.5)}, "cokl_without_term1": {1.0: (0.25, 0.9, 0.5, 1.5)}}
    assert verdict(points, "less than half") != "held"


@pytest.mark.parametrize("missing", ["cokl", "cokl_without_term1"])
def test_without_either_of_its_methods_a_collapse_is_not_measured(missing: str):
    points = {method: at for method, at in POINTS.items() if method != missing}
    assert not [c for c in claims.judge(score.score(shift_table(points))) if "less than half" in c.statement]


def test_a_lead_over_the_best_rival_says_how_the_rival_was_chosen():
    primary = judged(shift_table(), "than every method that is no variant").primary
    assert primary.what.endswith("the best on the selection seeds")


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


def test_anchors_that_noise_hides_are_said():
    lost = {**POINTS, "none": {0.0: (BASE[0], NONE[1], 0.1, 0.1)}}
    assert "WARNING" in report.summary(shift_table(lost, jitter=0.05))
    assert "WARNING" not in report.summary(shift_table())


@pytest.mark.parametrize("wrong", [{"methods": ("cokl", "forward_kl")}, {"methods": ("none",)}, {"selection_seeds": 0}])
def test_what_could_not_be_scored_is_refused_before_training(wrong):
    config = dataclasses.replace(SHIFT_PRESETS["quick"], **wrong)
    with pytest.raises(InputError, match=next(iter(wrong))):
        report.require_scores(config.methods, config.selection_seeds)
