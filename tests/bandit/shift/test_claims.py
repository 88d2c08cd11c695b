"""The paper's claims of the task shift, judged on tables made by hand, in both directions."""

from __future__ import annotations

import copy

import pandas as pd
import pytest

from bandit.engine.two_tasks.summary import forgotten_and_learned
from bandit.shift import claims, scores
from bandit.shift.analysis import analyse
from bandit.shift.claims import Views
from bandit.shift.config import ShiftConfig
from bandit.shift.figures import draw
from bandit.shift.scores import Scored
from cokl.support.verdicts import Claim
from tests.bandit.shift.tables import NONE, POINTS, shift_table


def verdict(points: dict, name: str, **options) -> str | None:
    """The verdict on a claim."""
    return judged(shift_table(points, **options), name).verdict


def judged(table: pd.DataFrame, name: str) -> Claim:
    """The claim of this name, of which there is one."""
    (claim,) = [claim for claim in claims.judge(Views(Scored.of(table))) if claim.name == name]
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


def reverse_at(beta: float, point: tuple) -> dict:
    """POINTS with another end of both reverse KLs at one coefficient."""
    return {**POINTS, **{name: {**POINTS[name], beta: point} for name in scores.REVERSE}}


PLACES = {
    "overall": "sampled, E.3's coefficients",
    "tuned": "sampled, best",
    "pattern": "sampled, beta 1",
    "reverse": "sampled, E.3's coefficients",
    "constrained": "sampled, E.3's coefficients",
    "tuned reverse": "sampled, best",
    "search": "sampled",
    "dynamics": "sampled, beta 1",
    "collapse": "sampled, beta 1",
    "level": "sampled, beta 1",
    "term 2": "sampled, beta 1",
    "floor": "sampled, beta 1",
    "batches": "sampled",
    "larger batches": "sampled",
    "beta": "sampled",
    "zero-correct": "sampled, beta 1",
    "drift": "sampled",
}
"""Where the primary measurement of each claim is."""


@pytest.mark.parametrize("name", PLACES)
def test_claims_are_held_on_data_that_supports_them(name: str):
    assert judged(shift_table(batches=(16, 8, 32, 64)), name).verdict == "held"


@pytest.mark.parametrize(
    ("points", "name"),
    [
        (swapped("cokl", "reverse_kl"), "tuned"),
        (reverse_at(0.001, (0.75, 0.89, 0.1, 0.2)), "overall"),
        (swapped("cokl", "correct_forward_kl"), "pattern"),
        (changed("cokl", middle=(0.6, 0.88, 0.1, 0.2)), "pattern"),
        (changed("cokl", middle=(0.78, 0.88, 0.1, 0.2)), "pattern"),
        (changed("cokl", middle=(0.69, 0.81, 0.1, 0.2)), "pattern"),
        (reverse_at(0.001, (0.75, 0.87, 0.1, 0.2)), "reverse"),
        (reverse_at(0.001, (0.5, 0.7, 0.1, 0.2)), "constrained"),
        (reverse_at(0.01, (0.6, 0.88, 0.1, 0.2)), "search"),
        (changed("cokl", middle=(0.7, 0.8, 0.1, 0.2)), "dynamics"),
        (changed("cokl", middle=(0.25, 0.88, 0.1, 0.2)), "dynamics"),
        (swapped("cokl", "cokl_without_term1"), "collapse"),
        (changed("cokl_without_term1", middle=(0.2, 0.86, 0.5, 1.3)), "level"),
        (changed("cokl_floor", middle=(0.78, 0.89, 0.1, 0.2), low=(0.78, 0.89, 0.1, 0.2)), "floor"),
        (changed("cokl", low=(0.75, 0.5, 0.1, 0.1), high=(0.5, 0.88, 0.3, 0.4)), "beta"),
        (changed("cokl", low=(0.5, 0.4, 0.1, 0.1)), "beta"),
        (
            {
                **POINTS,
                **{
                    name: {beta: (0.8, 0.88, 0.1, 0.1) for beta in POINTS[name]}
                    for name in ("reverse_kl", "correct_reverse_kl")
                },
            },
            "tuned reverse",
        ),
        (changed("cokl", middle=(0.0, 0.88, 0.1, 0.2)), "zero-correct"),
        (
            {**POINTS, "none": {0.0: (*NONE, 1.5, 0.5)}, "cokl": {1.0: (0.7, 0.86, 0.2, 0.1)}},
            "drift",
        ),
    ],
)
def test_a_verdict_turns_with_the_data(points: dict, name: str):
    assert verdict(points, name) == "not held"


def test_without_term_2_the_adaptations_can_turn_too():
    points = changed("cokl", low=(0.3, 0.7, 0.3, 0.4), middle=(0.45, 0.75, 0.1, 0.2), high=(0.5, 0.3, 0.05, 0.1))
    assert verdict(points, "term 2") == "not held"


def test_the_paper_s_batches_are_judged_and_larger_ones_beside_them():
    table = shift_table()
    table["kl_prompts"] = table["kl_prompts"].replace({8: 32, 32: 8})
    assert judged(table, "batches").verdict == "not held"
    table["kl_prompts"] = table["kl_prompts"].replace({8: 64, 32: 8})  # 64 retains less than 8, and there is no 32
    assert "16 minus with 8" in judged(table, "batches").primary.text
    assert "64 minus with 8" in judged(table, "larger batches").primary.text


def test_beta_is_judged_within_the_papers_range():
    """Outside of it retention falls with beta, which the verdict must not see."""
    points = {**POINTS, "cokl": {0.01: (0.79, 0.3, 0.1, 0.1), **POINTS["cokl"], 100.0: (0.3, 0.89, 0.1, 0.1)}}
    claim = judged(shift_table(points), "beta")
    assert claim.verdict == "held"
    assert "at beta 10 minus at 0.1" in claim.primary.text


def test_a_claim_of_several_parts_is_not_judged_on_some_of_them():
    points = {name: ends for name, ends in POINTS.items() if name != "correct_reverse_kl"}
    found = {claim.name for claim in claims.judge(Views(Scored.of(shift_table(points))))}
    assert set(PLACES) - found == {"overall", "reverse", "constrained", "tuned reverse", "search", "larger batches"}


def test_the_primary_measurement_is_the_sampled_one_at_the_declared_place():
    both = pd.concat([shift_table(batches=(16, 8, 32, 64)).assign(mode=m) for m in ("exact", "sampled")])
    judgements = claims.judge(Views(Scored.of(both.reset_index(drop=True))))
    assert [claim.name for claim in judgements] == [*PLACES] == [*claims.PAPER_CLAIMS]
    for claim, place in zip(judgements, PLACES.values(), strict=True):
        assert claim.primary.text.startswith(f"{place}: ")
    assert "at step 20" in judged(both, "drift").primary.text


def test_the_rival_is_chosen_on_the_selection_seeds():
    table = shift_table()
    spoilt = table.copy()
    praised = (spoilt["role"] == "report") & (spoilt["method"] == "reverse_kl") & (spoilt["step"] > 0)
    spoilt.loc[praised, "prior_correct"] += 0.3
    for judging in (table, spoilt):
        measured = judged(judging, "tuned").primary.text
        assert "CoKL minus Replay, the best on the selection seeds" in measured


def test_noise_leaves_a_claim_undecided_and_modes_can_disagree():
    assert verdict(POINTS, "floor", jitter=0.2) == "undecided"
    turned = shift_table(swapped("cokl", "correct_forward_kl")).assign(mode="sampled")
    claim = judged(pd.concat([shift_table(), turned], ignore_index=True), "term 2")
    assert claim.verdict == "depends"
    said = {one.text.split(": ")[0]: one.text.rpartition("(")[2] for one in claim.secondary}
    assert (said["exact, beta 1"], said["sampled, best"]) == ("held)", "not held)")


@pytest.mark.parametrize(("prior", "expected"), [(0.49, "held"), (0.51, "not held")])
def test_less_than_half_is_of_what_cokl_retains(prior: float, expected: str):
    """CoKL retains 0.4 of 0.5 at beta 1: half of that is a prior correctness of 0.5."""
    points = changed("cokl_without_term1", middle=(prior, 0.86, 0.5, 1.3))
    table = shift_table(points)
    assert judged(table[table["beta"].isin((0.0, 1.0))], "collapse").verdict == expected


def test_a_cokl_that_retains_nothing_cannot_show_a_collapse():
    points = {**POINTS, "cokl": {1.0: (0.3, 0.9, 0.5, 1.5)}, "cokl_without_term1": {1.0: (0.25, 0.9, 0.5, 1.5)}}
    assert verdict(points, "collapse") != "held"


def test_a_picture_says_that_a_run_diverged():
    table = shift_table()
    lost = (table["method"] == "cokl") & (table["beta"] == 10) & (table["seed"] == 0) & (table["step"] == 20)
    table.loc[lost, "prior_correct"] = float("nan")
    for drawing in draw(analyse({"shift": table}, ShiftConfig())).values():
        assert "diverged" in drawing.note


def test_who_makes_a_claim_is_what_its_place_says():
    """What is beyond the paper is called so where a reader sees it, and nothing else is."""
    said = {name: "beyond" in claim.place for name, claim in claims.PAPER_CLAIMS.items()}
    assert said == {name: claim.origin == "beyond" for name, claim in claims.PAPER_CLAIMS.items()}


def test_the_coefficients_of_a_table_are_chosen_once_for_claims_tables_and_pictures(monkeypatch):
    chosen, choose = [], scores.best_coefficients

    def counted(scored: pd.DataFrame) -> pd.DataFrame:
        chosen.append(scored)
        return choose(scored)

    monkeypatch.setattr(scores, "best_coefficients", counted)
    assert draw(analyse({"shift": shift_table()}, ShiftConfig()))
    assert len(chosen) == 1


@pytest.mark.parametrize("missing", ["cokl", "cokl_without_term1"])
def test_without_either_of_its_methods_a_collapse_is_not_measured(missing: str):
    points = {method: at for method, at in POINTS.items() if method != missing}
    assert not [c for c in claims.judge(Views(Scored.of(shift_table(points)))) if c.name == "collapse"]


@pytest.mark.parametrize(("gain", "expected"), [(0.5, "held"), (0.8, "held"), (1.2, "not held"), (1.5, "not held")])
def test_a_gain_of_the_floor_is_none_below_one_point_of_overall(gain: float, expected: str):
    """A hundredth of prior correctness is two points of retention, one of Overall."""
    prior, *others = POINTS["cokl"][1.0]
    table = shift_table(changed("cokl_floor", middle=(prior + gain / 100, *others)), jitter=1e-5)
    assert judged(table[table["beta"].isin((0.0, 1.0))], "floor").verdict == expected


def test_what_is_forgotten_and_learned_is_of_the_reported_seeds():
    table = shift_table(jitter=0.0)
    table.loc[(table["role"] == "selection") & (table["method"] == "none"), ["prior_correct", "new_correct"]] = 0.17
    (forgotten, around), (learned, _) = forgotten_and_learned(table)
    assert (forgotten, learned, around) == pytest.approx((0.5, 0.7, 0.0))
