"""Scores and verdicts of every lab that shares the shift table's columns, from a table whose answers are worked out."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bandit.sequences import analysis as sequences
from bandit.sequences.analysis import primary
from bandit.shift import analysis as score
from bandit.shift.analysis import PAPER_CLAIMS, judge
from cokl.support.verdicts import Claim
from tests.bandit.shift.tables import SEEDS, shift_table
from tests.bandit.shift.unequal import LUCK, unequal_table

CROSSING = 33.75
"""Between beta 1 and 3, which lie 5 below and 3 above an adaptation of 90: 3/8 of 40 and 5/8 of 30."""
REPLAYS = 30.0
"""Between beta 1 and 10, 5 above and 15 below: 3/4 of 20 and 1/4 of 60."""
HALF_WIDTH = stats.t.ppf(0.975, 4) * math.sqrt((0.03**2 + 0.01**2 + 0.02**2 + 0.04**2) / 4) / math.sqrt(5)
"""Of CoKL's luck, in prior correctness."""


def test_of_several_crossings_the_selection_seeds_choose_and_the_reported_ones_count():
    found = score.at_equal_adaptation(score.score(unequal_table()), ("retention", "prior_correct", "prior_pass_at_k"))
    assert set(found["method"]) == {"cokl", "correct_forward_kl", "forward_kl"}  # without term 2 it never passes 90
    ours = found[found["method"] == "cokl"].set_index("seed")
    assert set(zip(ours["beta_below"], ours["beta_above"], strict=True)) == {(1.0, 3.0)}
    assert ours["retention"].to_dict() == pytest.approx({seed: CROSSING + 200 * luck for seed, luck in LUCK.items()})
    assert ours["prior_correct"].mean() == pytest.approx(0.3 + CROSSING / 200)
    assert ours["prior_pass_at_k"].tolist() == pytest.approx([0.9] * 5)
    replay = found[found["method"] == "correct_forward_kl"]
    assert replay["retention"].tolist() == pytest.approx([REPLAYS] * 5)


def test_what_is_forgotten_and_learned_is_of_the_reported_seeds():
    table = unequal_table()
    table.loc[(table["role"] == "selection") & (table["method"] == "none"), ["prior_correct", "new_correct"]] = 0.17
    (forgotten, around), (learned, _) = score.forgotten_and_learned(table)
    assert (forgotten, learned) == pytest.approx((0.5, 0.5))
    assert around == pytest.approx(0)


def test_the_sequence_labs_lead_is_paired_and_in_accuracy():
    table = unequal_table().assign(conditional_entropy=0.7, new_kl=0.0)
    lead = sequences.leads(table).set_index("method").loc["correct_forward_kl"]
    assert lead["retention"] == pytest.approx(CROSSING - REPLAYS)
    assert lead["prior_correct"] == pytest.approx((CROSSING - REPLAYS) / 200)
    assert lead["prior_correct_half_width"] == pytest.approx(HALF_WIDTH)
    assert lead["prior_pass_at_k"] == pytest.approx(0.9 - 0.77)
    assert lead["conditional_kl"] == pytest.approx(0.25 - 0.65)
    assert sequences.primary_lead(table) == pytest.approx(((CROSSING - REPLAYS) / 200, HALF_WIDTH))
    assert primary(table).endswith("(sampled): 1.9 ± 3.4 points. In this miniature: undecided.")


@pytest.mark.parametrize("bend", [0.0, 1.0])
def test_the_razor_is_a_parabola_over_the_reported_seeds_alone(bend):
    """Against NumPy's polynomials; on the selection seeds nothing predicts anything."""
    noise = np.random.default_rng(0)
    table = unequal_table().assign(conditional_entropy=0.7)
    lost = 0.8 - table["prior_correct"]
    table["new_kl"] = lost + bend * lost**2 + noise.normal(scale=0.03, size=len(table))
    table[["mass_drift", "correct_drift"]] = noise.random((len(table), 2))
    table.loc[table["role"] == "selection", ["new_kl", "prior_correct"]] = noise.random((_rows(table), 2))
    anchors = (table["role"] == "selection") & table["method"].isin(["base", "none"])
    table.loc[anchors, "prior_correct"] = unequal_table().loc[anchors, "prior_correct"]
    found = sequences.razor(table).set_index(["over", "predictor"])
    reported = table[table["role"] == "report"].assign(
        prior_kl=lambda rows: rows["mass_drift"] + rows["correct_drift"] + rows["incorrect_drift"]
    )
    ends = reported[(reported["step"] == 20) & (reported["method"] != "base")]
    for predictor in ("new_kl", "prior_kl", "mass_drift"):
        explained = []
        for seed in LUCK:
            rows = ends[ends["seed"] == seed]
            x, y = rows[predictor].to_numpy(), 0.8 - rows["prior_correct"].to_numpy()
            assert len(x) == 11
            left = y - np.polyval(np.polyfit(x, y, 2), x)
            explained.append(1 - (left**2).sum() / ((y - y.mean()) ** 2).sum())
        shown = found.xs(("all methods", predictor))
        assert shown["r2"] == pytest.approx(statistics.mean(explained))
        half = stats.t.ppf(0.975, 4) * statistics.stdev(explained) / math.sqrt(5)
        assert shown["r2_half_width"] == pytest.approx(half)
    assert "GRPO over time" not in found.index.get_level_values("over")  # four steps, fewer than five points


def _rows(table: pd.DataFrame) -> int:
    return int((table["role"] == "selection").sum())


WANTED: dict[str, list[tuple[str, str, float, str | None, float]]] = {
    "each of the paper's four baselines": [
        ("overall", "cokl", 1.0, name, beta)
        for name, beta in (
            ("forward_kl", 1.0),
            ("correct_forward_kl", 1.0),
            ("reverse_kl", 0.001),
            ("correct_reverse_kl", 0.001),
        )
    ],
    "than replay": [
        (score_, "cokl", 1.0, "correct_forward_kl", 1.0) for score_ in ("overall", "retention", "adaptation")
    ],
    "At E.3's coefficients reverse": [
        ("retention", "forward_kl", 1.0, "reverse_kl", 0.001),
        ("retention", "correct_forward_kl", 1.0, "correct_reverse_kl", 0.001),
    ],
    "adapt less than reverse": [
        ("adaptation", "reverse_kl", 0.001, "forward_kl", 1.0),
        ("adaptation", "correct_reverse_kl", 0.001, "correct_forward_kl", 1.0),
    ],
    "Of E.3's coefficients": [
        ("overall", name, chosen, name, other)
        for name, chosen, others in (
            ("forward_kl", 1.0, (0.1, 10.0)),
            ("correct_forward_kl", 1.0, (0.1, 10.0)),
            ("reverse_kl", 0.001, (0.01, 1.0)),
            ("correct_reverse_kl", 0.001, (0.01, 1.0)),
        )
        for other in others
    ],
    "term 2": [("adaptation", "cokl", 1.0, "cokl_without_term2", 1.0)],
    "floor": [("overall", "cokl", 1.0, "cokl_floor", 1.0)],
    "trades off": [("retention", "cokl", 10.0, "cokl", 0.1), ("adaptation", "cokl", 0.1, "cokl", 10.0)],
    "ends with the prior task better": [
        ("retention", "cokl", 1.0, None, 0.0),
        ("adaptation", "cokl", 1.0, "none", 0.0),
    ],
    "no less than GRPO": [("retention", "cokl_without_term1", 1.0, None, 0.0)],
}
"""Words of a claim, and of what its primary measurement is the difference: a score of one run minus another's."""


@pytest.fixture(scope="module")
def noisy() -> pd.DataFrame:
    """Every method of the lab; no two scores alike."""
    table = shift_table(jitter=0.03, batches=(16, 8, 32, 64))
    return table.assign(zero_correct_rate=np.random.default_rng(1).random(len(table)))


@pytest.fixture(scope="module")
def noisy_claims(noisy) -> list[Claim]:
    """What is judged on it."""
    return judge(score.score(noisy))


def seeds_scores(table: pd.DataFrame, method: str, beta: float, prompts: int = 16) -> dict[str, np.ndarray]:
    """Each reported seed's scores: linearised around the ratio of means."""
    last = table[(table["role"] == "report") & ((table["step"] == 20) | (table["method"] == "base"))]

    def of(name: str, at: float, column: str, batch: int) -> np.ndarray:
        rows = last[(last["method"] == name) & (last["beta"] == at) & (last["kl_prompts"] == batch)]
        return rows.sort_values("seed")[column].to_numpy()

    found = {}
    for name, column, zero, hundred in (
        ("retention", "prior_correct", "none", "base"), ("adaptation", "new_correct", "base", "none")
    ):  # fmt: skip
        value, low, high = (
            of(method, beta, column, 0 if beta == 0 else prompts),
            of(zero, 0, column, 0),
            of(hundred, 0, column, 0),
        )
        span = high.mean() - low.mean()
        ratio = (value.mean() - low.mean()) / span
        found[name] = 100 * (ratio + (value - low - ratio * (high - low)) / span)
    return {**found, "overall": (found["retention"] + found["adaptation"]) / 2}


def written(values: np.ndarray, unit: str = "points") -> str:
    """A mean and its interval as a claim prints them."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    digits = 1 if unit == "points" else 3
    return f"{values.mean():z.{digits}f} ± {half:.{digits}f} {unit}"


def about(claims: list[Claim], words: str) -> Claim:
    """The only claim whose statement holds these words."""
    (claim,) = [claim for claim in claims if words in claim.statement]
    return claim


@pytest.mark.parametrize("words", WANTED)
def test_a_claim_prints_the_difference_that_the_paper_expects(words, noisy, noisy_claims):
    parts = about(noisy_claims, words).measured.split("; ")
    assert len(parts) == len(WANTED[words])
    for part, (column, one, at, other, there) in zip(parts, WANTED[words], strict=True):
        values = seeds_scores(noisy, one, at)[column]
        if other is not None:
            values = values - seeds_scores(noisy, other, there)[column]
        assert f" {written(values)}" in part


def test_what_is_not_a_difference_of_scores_is_printed_too(noisy, noisy_claims):
    """The ablation, the KL batches, the rollout groups and the drifts."""

    def printed(words: str) -> str:
        return about(noisy_claims, words).measured

    ours, without = (seeds_scores(noisy, name, 1.0)["retention"] for name in ("cokl", "cokl_without_term1"))
    assert (without < 0).any()
    assert " " + written(ours / 2 - np.maximum(without, 0)) in printed("less than half")
    batches = {size: seeds_scores(noisy, "cokl", 1.0, size)["retention"] for size in (8, 16, 32, 64)}
    assert printed("Larger KL").endswith(f"32 minus with 8 prompts at beta 1: {written(batches[32] - batches[8])}")
    evidence = about(noisy_claims, "Larger KL").evidence
    assert [line.rpartition("prompts at beta 1: ")[2].rpartition(" (")[0] for line in evidence] == [
        written(batches[16] - batches[8]), written(batches[32] - batches[16])
    ]  # fmt: skip
    assert " " + written(batches[64] - batches[8]) in printed("above the paper's")
    reported = noisy[noisy["role"] == "report"]
    ours_ = reported[(reported["method"] == "cokl") & (reported["beta"] == 1) & (reported["kl_prompts"] == 16)]
    rates = ours_[ours_["step"] > 0].groupby("seed")["zero_correct_rate"].mean().to_numpy()
    assert " " + written(50 - 100 * rates) in printed("rollout groups hold")
    grpo = reported[(reported["method"] == "none") & (reported["step"] == 20)].sort_values("seed")
    drifts = (grpo["correct_drift"] - grpo["mass_drift"]).to_numpy()
    assert " " + written(drifts, "nats") in printed("drift within")
    assert set(SEEDS["report"]) == set(grpo["seed"])
    equal = [words for words in PAPER_CLAIMS if "equal means within 5" in printed(PAPER_CLAIMS[words][0])]
    assert equal == ["pattern", "dynamics"]


def test_the_best_rival_by_selection_is_the_one_that_a_tuned_cokl_meets():
    claim = about(judge(score.score(unequal_table())), "every method that is no variant")
    assert claim.measured.startswith("primary: sampled, best: overall of CoKL minus Forward KL, the best")
    assert f" {-0.5:.1f} ± {100 * HALF_WIDTH:.1f} points" in claim.measured  # 62.5 and 63
    assert claim.verdict == "undecided"


@pytest.mark.parametrize(("loss", "expected"), [(0.5, "held"), (1.5, "not held")])
def test_a_gain_from_the_floor_of_a_point_and_a_half_is_no_longer_none(loss, expected):
    """Of Overall, at beta 1: the floor has `loss` points more than CoKL in every seed."""
    table = unequal_table()
    floor = table[(table["method"] == "cokl") & (table["beta"] == 1.0)].assign(method="cokl_floor")
    floor.loc[floor["step"] > 0, "prior_correct"] += 2 * loss / 200
    claim = about(judge(score.score(pd.concat([table, floor], ignore_index=True))), "floor")
    assert claim.measured.endswith(f" {-loss:.1f} ± 0.0 points")
    assert claim.verdict == expected
